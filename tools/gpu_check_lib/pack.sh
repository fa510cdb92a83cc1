# gpu_check pack and build: the files carried to the GPU machine. shellcheck shell=bash

PROGRAMS="models/resnet50/train_resnet50 models/gpt/train_gpt models/vit/train_vit tools/bench tools/pack tests/conform/conform tests/conform/conform_step"
# Only in builds with CUDA; gpu_ranks needs NCCL and tests each of its calls.
OPTIONAL="liblather-cuda.so tests/dist/gpu_ranks"
# Leaves out libraries that are large and not tested here.
LEAN="-Dbuildtype=release -Donednn=disabled -Dmpi=disabled -Davif=disabled -Dtiff=disabled -Dwebp=disabled"
MOST_MIB=60

# SOURCE BUILD [meson arguments]: configures and builds the carried programs.
compile()
{
    local source=$1 into=$2 target
    shift 2
    # shellcheck disable=SC2086
    [ -f "$into/build.ninja" ] || meson setup "$into" "$source" $LEAN "$@" || return
    # shellcheck disable=SC2086
    ninja -C "$into" $PROGRAMS || return
    for target in $OPTIONAL; do
        grep -q "build $target:" "$into/build.ninja" || continue
        ninja -C "$into" "$target" || return
    done
}

# LIBRARY: succeeds for libraries of the C library and CUDA, which the GPU machine has.
is_theirs()
{
    case $(basename "$1") in
    ld-linux* | libc.so* | libm.so* | libdl.so* | libpthread.so* | librt.so* | linux-vdso*) return 0 ;;
    libcud* | libcublas* | libcusolver* | libcusparse* | libnv* | libnccl*) return 0 ;;
    esac
    return 1
}

# BUILD DIR: copies the programs and their libraries, stripped. Libraries that the GPU machine may have are in spare/, one folder
# each; places.sh uses those that are missing.
collect()
{
    local from=$1 to=$2 program library
    mkdir -p "$to/bin" "$to/lib" "$to/spare"
    for program in $PROGRAMS; do
        cp "$from/$program" "$to/bin/" || return
    done
    [ ! -f "$from/tests/dist/gpu_ranks" ] || cp "$from/tests/dist/gpu_ranks" "$to/bin/" || return
    [ ! -f "$from/liblather-cuda.so" ] || cp "$from/liblather-cuda.so" "$to/lib/" || return
    for library in $(ldd "$to"/bin/* "$to"/lib/*.so "$from"/tools/bench 2>/dev/null |
        sed -n 's/.* => \(\/[^ ]*\) .*/\1/p' | sort -u); do
        case $(basename "$library") in liblather*) continue ;; esac
        is_theirs "$library" && continue
        mkdir -p "$to/spare/$(basename "$library")" && cp -L "$library" "$to/spare/$(basename "$library")/" || return
    done
    for library in "$from"/liblather.so.[0-9] "$from"/models/resnet50/liblather-resnet.so.[0-9]; do
        [ ! -e "$library" ] || cp -L "$library" "$to/lib/"
    done
    strip --strip-unneeded "$to"/bin/* "$to"/lib/* "$to"/spare/*/* 2>/dev/null
    return 0
}

# NUMBER: prints it as four bytes, the most significant first.
big_endian()
{
    # shellcheck disable=SC2059
    printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' $(($1 >> 24 & 255)) $(($1 >> 16 & 255)) \
        $(($1 >> 8 & 255)) $(($1 & 255)))"
}

# FILE COUNT BYTES-PER-ELEMENT HEADER-BYTES: prints an idx file of the first COUNT elements, compressed.
cut_idx()
{
    { zcat -f "$1" 2>/dev/null || true; } | {
        head -c 4
        head -c 4 >/dev/null
        big_endian "$2"
        head -c $(($4 - 8 + $2 * $3))
    } | gzip -9n
}

cut_fashion()
{
    local from=${LATHER_FASHION_MNIST:-/usr/share/datasets/fashion-mnist} part count kind file
    for part in train t10k; do
        count=12000
        [ $part = train ] || count=2000
        for kind in images-idx3 labels-idx1; do
            file=$from/$part-$kind-ubyte
            [ -f "$file" ] || file=$file.gz
            [ -f "$file" ] || {
                echo "gpu_check: $from: no $part-$kind-ubyte[.gz]; --data names another data set" >&2
                return 77
            }
            case $kind in
            images-idx3) cut_idx "$file" $count 784 16 ;;
            *) cut_idx "$file" $count 1 8 ;;
            esac >"$1/$part-$kind-ubyte.gz" || return
        done
    done
}

# ROOT DIR: packs the files that build needs: the sources, and meson, which is pure Python.
carry_source()
{
    local root=$1 to=$2 package
    git -C "$root" archive --format=tar.gz -o "$to/source.tar.gz" HEAD 2>/dev/null ||
        tar -C "$root" --exclude 'build*' --exclude .git -czf "$to/source.tar.gz" . || return
    package=$(sed -n '1s/^#! *//p' "$(command -v meson)" 2>/dev/null)
    package=$("${package:-python3}" -c 'import os, mesonbuild; print(os.path.dirname(mesonbuild.__file__))' 2>/dev/null) || return 0
    mkdir -p "$to/meson" && tar -C "$(dirname "$package")" --exclude __pycache__ --exclude '*/test*' -cf - mesonbuild |
        tar -C "$to/meson" -xf - || return
    # Meson calls itself through the name of its script.
    printf '%s\n' 'import os, sys' 'sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))' \
        'from mesonbuild.mesonmain import main' 'sys.exit(main())' >"$to/meson/meson.py" || return
    # shellcheck disable=SC2016
    printf '%s\n' '#!/bin/sh' 'exec python3 "$(dirname "$(readlink -f "$0")")/meson.py" "$@"' >"$to/meson/meson" &&
        chmod +x "$to/meson/meson" || return
    cp "$(command -v ninja)" "$to/meson/" 2>/dev/null || true
}

pack()
{
    local to=${1-} data=fashion-mnist into='' root size old
    [ -n "$to" ] || usage
    shift
    while [ $# -gt 1 ]; do
        case $1 in
        --data) data=$2 ;;
        --build) into=$2 ;;
        *) usage ;;
        esac
        shift 2
    done
    [ $# = 0 ] || usage
    root=$(dirname "$(dirname "$self")")
    mkdir -p "$to" || exit
    [ -n "$into" ] || into=$to.build
    compile "$root" "$into" -Dgpu_arch=90 >"$to.log" 2>&1 || {
        tail -20 "$to.log" >&2
        exit 1
    }
    rm -f "$to.log"
    for old in bin lib spare data meson logs cache work results gpu_check_lib bench; do
        rm -rf "${to:?}/$old"
    done
    collect "$into" "$to" || exit
    mkdir -p "$to/data"
    case $data in
    fashion-mnist) cut_fashion "$to/data" || exit ;;
    *) "$into/tools/pack" --quiet --mode original "$data" "$to/data" || exit 1 ;;
    esac
    carry_source "$root" "$to" || exit
    mkdir "$to/bench" && cp "$root/tools/bench/peer.py" "$root/tools/bench/turns.py" "$to/bench/" &&
        cp "$self" "$root/docs/results/gpu-model.md" "$to/" && cp -r "$root/tools/gpu_check_lib" "$to/" || exit
    { git -C "$root" describe --always --dirty 2>/dev/null || echo unknown; } >"$to/commit"
    size=$(du -sm "$to" | cut -f1)
    [ "$size" -le $MOST_MIB ] || {
        echo "gpu_check: $to: $size MiB, allowed $MOST_MIB" >&2
        exit 1
    }
    echo "$to: $size MiB"
}

build_there()
{
    local dir=${1-}
    [ -d "$dir" ] || usage
    PATH=$PATH:$(cd "$dir" && pwd)/meson # one that is there knows its Python better
    mkdir -p "$dir/source" && tar -C "$dir/source" -xzf "$dir/source.tar.gz" || exit 1
    compile "$dir/source" "$dir/source/build-there" -Dtests=auto -Dcuda=enabled >"$dir/build.log" 2>&1 || {
        tail -30 "$dir/build.log" >&2
        exit 1
    }
    rm -rf "${dir:?}/bin" "${dir:?}/lib" "${dir:?}/spare" "${dir:?}/logs/libraries" # those that it links have their places
    collect "$dir/source/build-there" "$dir"
}

