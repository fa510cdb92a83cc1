# gpu_check: finds CUDA's libraries, Python with PyTorch, and compute-sanitizer on the machine. shellcheck shell=bash

# --- libraries ---

# DIR: prints the libraries that the carried programs need and the loader does not find. They include NVRTC, which cuDNN opens
# for kernels compiled at run time, and the driver, which the runtime opens.
wanted_libraries()
{
    local module=$1/lib/liblather-cuda.so major library
    ldd "$module" "$1"/bin/* 2>/dev/null | sed -n 's/^[ \t]*\(lib[^ ]*\) => not found.*/\1/p' | sort -u
    [ -e "$module" ] || return
    major=$(ldd "$module" 2>/dev/null | sed -n 's/^[ \t]*libcudart\.so\.\([0-9]*\).*/\1/p' | head -1)
    for library in ${major:+libnvrtc.so.$major libcuda.so.1}; do
        loader_finds "$library" || echo "$library"
    done
}

# NAME: succeeds if LD_LIBRARY_PATH or the system's cache has the library.
loader_finds()
{
    local place
    while IFS= read -r -d : place; do
        [ -z "$place" ] || [ ! -e "$place/$1" ] || return 0
    done <<<"$LD_LIBRARY_PATH:"
    { ldconfig -p || /sbin/ldconfig -p; } 2>/dev/null | grep -q "[[:space:]]$1 "
}

# DIR: prints folders to search: those of the active environment, the toolkit, the system, conda, Python's wheels, and last the
# carried libraries.
library_places()
{
    local prefix
    for prefix in "${CUDA_HOME-}" "${CUDA_PATH-}"; do
        [ -z "$prefix" ] || printf '%s\n' "$prefix"/lib64 "$prefix"/targets/*/lib "$prefix"/lib
    done
    printf '%s\n' /usr/local/cuda/lib64 /usr/local/cuda/targets/*/lib /usr/local/cuda-*/lib64 \
        /usr/local/cuda-*/targets/*/lib /usr/local/cuda*/extras/CUPTI/lib64 /usr/lib/*-linux-gnu /usr/lib64 \
        /usr/local/lib /usr/local/nvidia/lib64 /usr/lib/wsl/lib ${CONDA_PREFIX:+"$CONDA_PREFIX/lib"} /opt/conda/lib
    each_python | while IFS= read -r program; do
        LD_LIBRARY_PATH=$LATHER_OUTSIDE timeout 60 "$program" -c 'import glob, site, sys
for f in sys.path + getattr(site, "getsitepackages", list)() + [site.getusersitepackages()]:
    for lib in sorted(glob.glob(f + "/nvidia/*/lib")):
        print(lib)' 2>/dev/null
    done
    printf '%s\n' "$1"/spare/*
}

# NAME: prints the folder of the first such file on the whole machine. The search runs once, for all names.
anywhere()
{
    local list=$dir/logs/everywhere
    [ -f "$list" ] || timeout 60 find / \( -path /proc -o -path /sys -o -path /dev -o -path "$dir" \) -prune -o \
        \( -type f -o -type l \) \( -name 'libcu*.so*' -o -name 'libnv*.so*' -o -name 'libnccl*.so*' \) \
        -print >"$list" 2>/dev/null
    grep "/$1\$" "$list" | head -1 | sed 's:/[^/]*$::'
}

# DIR: prints folders for LD_LIBRARY_PATH, a colon after each. Repeats until no library needs another.
cuda_folders()
{
    local library place found places path='' before
    places=$(library_places "$1")
    while :; do
        before=$path
        for library in $(LD_LIBRARY_PATH=$1/lib:$path$LATHER_OUTSIDE wanted_libraries "$1"); do
            found=''
            while IFS= read -r place; do
                [ ! -e "$place/$library" ] || { found=$place && break; }
            done <<<"$places"
            [ -n "$found" ] || found=$(anywhere "$library")
            case :$path in *":$found:"*) found='' ;; esac
            path=$path${found:+$found:}
        done
        [ "$path" != "$before" ] || break
    done
    echo "$path"
}

# --- Python ---

# Prints candidate Python interpreters, each once.
each_python()
{
    local program real seen=' '
    if [ -n "${LATHER_PYTHON-}" ]; then
        [ ! -x "$LATHER_PYTHON" ] || echo "$LATHER_PYTHON"
        return
    fi
    for program in "$(command -v python3)" "$(command -v python)" \
        ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python3"} ${CONDA_PREFIX:+"$CONDA_PREFIX/bin/python3"} \
        /opt/*/bin/python3 /opt/*/.venv/bin/python3 /opt/*/venv/bin/python3 /venv/bin/python3 /usr/local/bin/python3 \
        /usr/bin/python3 "${HOME:-/root}"/.venv/bin/python3 "${HOME:-/root}"/*conda3/bin/python3; do
        [ -x "$program" ] || continue
        # Resolves links of the folder only: an environment's python3 links to an interpreter with other packages.
        real=$(readlink -f "$(dirname "$program")")/$(basename "$program")
        case $seen in *" $real "*) continue ;; esac
        seen="$seen$real "
        echo "$program"
    done
}

# Prints the first interpreter that has torchvision and PyTorch (with CUDA for --device cuda), or nothing if none has. Does not
# import them, which takes long.
find_python()
{
    local program
    each_python | while IFS= read -r program; do
        LD_LIBRARY_PATH=$LATHER_OUTSIDE timeout 60 "$program" -c 'import importlib.util as u, os, re, sys
torch = u.find_spec("torch")
if not (torch and u.find_spec("torchvision")): sys.exit(1)
version = os.path.join(os.path.dirname(torch.origin), "version.py")
text = open(version).read() if os.path.exists(version) else ""
sys.exit("cuda" in sys.argv[1] and bool(re.search(r"^cuda\b.*= *None", text, re.M)))' "$device" 2>/dev/null || continue
        echo "$program"
        break
    done
}

# Runs that Python without the carried libraries.
python()
{
    LD_LIBRARY_PATH=$LATHER_OUTSIDE "$(cat "$dir/logs/python")" "$@"
}

has_torch()
{
    [ -s "$dir/logs/python" ]
}

# --- compute-sanitizer ---

find_sanitizer()
{
    local place
    if [ -n "${LATHER_SANITIZER-}" ]; then
        [ ! -x "$LATHER_SANITIZER" ] || echo "$LATHER_SANITIZER"
        return
    fi
    for place in "$(command -v compute-sanitizer)" "${CUDA_HOME:-/usr/local/cuda}"/bin/compute-sanitizer \
        /usr/local/cuda*/bin/compute-sanitizer /usr/local/cuda*/compute-sanitizer/compute-sanitizer \
        /opt/nvidia/*/compute-sanitizer /opt/nvidia/*/*/compute-sanitizer; do
        [ ! -x "$place" ] || { echo "$place" && return; }
    done
}
