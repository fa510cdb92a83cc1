#!/bin/sh
# mpirun.sh MPIRUN RANKS PROGRAM MODE: starts ranks; containers, root and few cores are fine. Exit
# status 77 without a launcher. MODE killed, stopped: passes if all are gone soon, and someone says why; alone: likewise, for one
# process that a launcher of another MPI started as one of RANKS.
set -u
mpirun=$1 ranks=$2 program=$3 mode=$4
command -v "$mpirun" >/dev/null 2>&1 || {
    echo "no $mpirun here"
    exit 77
}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_btl_vader_single_copy_mechanism=none
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMPI_MCA_hwloc_base_binding_policy=none OMP_WAIT_POLICY=passive
launch="$mpirun -n $ranks"
case $mode in
alone) why="$ranks processes were launched, but each sees only itself" launch="env PMI_SIZE=$ranks" ;;
killed*) why='signal 9\|killed' ;;
stopped*) why='deadline exceeded' ;;
*) exec timeout 100 $launch "$program" "$mode" "$ranks" ;;
esac
start=$(date +%s)
words=$(timeout 60 $launch "$program" "$mode" "$ranks" 2>&1)
code=$?
seconds=$(($(date +%s) - start))
echo "$words"
echo "exit status $code after $seconds s"
[ $code != 0 ] && [ $code != 124 ] && [ $seconds -lt 20 ] &&
    echo "$words" | grep -q -i "$why"
