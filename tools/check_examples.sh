#!/bin/sh
# Compiles every example against an installed prefix, by pkg-config alone and by CMake, and runs it.
#
#   tools/check_examples.sh PREFIX
#
# Prints a line per row, and `N passed, N failed, N skipped` at the end.
set -u
prefix=$1
root=$(cd "$(dirname "$0")/.." && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" LD_LIBRARY_PATH="$prefix/lib"
passed=0 failed=0 skipped=0

holds() # SENTENCE COMMAND...
{
    sentence=$1
    shift
    if "$@" >"$folder/out" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $sentence"
        sed 's/^/  /' "$folder/out"
    fi
}

# Compiles an example with the command in its own comment, "cc NAME.c ... && ./NAME", as a reader types it.
compile() # NAME
{
    line=$(sed -n 's/^ \*  *\(cc .*\)/\1/p' "$folder/$1.c" | sed 's/ && .*//; s/ \*\/$//')
    [ -n "$line" ] || {
        echo "examples/$1.c: no line that begins with cc in its comment"
        return 1
    }
    (cd "$folder" && eval "$line -Wall -Wextra -Werror -O2")
}

fails()
{
    ! "$@"
}

# Classes in order and their percentages to a hundredth, with batch norms folded and not.
same_classes() # WEIGHTS IMAGE: classify against train_resnet50 predict
{
    "$folder/classify" "$1" "$2" >"$folder/top" || return 1
    "$prefix/bin/train_resnet50" predict --weights "$1" --image-size 224 "$2" >"$folder/other" ||
        return 1
    awk '{ print $1, $2 }' "$folder/top" >"$folder/folded"
    awk '/class/ { print $4, $1 }' "$folder/other" >"$folder/predicted"
    [ "$(wc -l <"$folder/folded")" = 5 ] && cmp "$folder/folded" "$folder/predicted"
}

# The likeliest classes by the logits of examples/onnx.c, in the order that classify printed.
same_logits()
{
    "$folder/onnx" "$folder/model.onnx" "$root/tests/tools/gradient.jpg" >"$folder/logits" || return 1
    sort -k2,2gr "$folder/logits" | awk 'NR <= 5 { print $1 }' >"$folder/order"
    awk '{ print $1 }' "$folder/top" | cmp - "$folder/order"
}

says() # TEXT COMMAND...
{
    text=$1
    shift
    "$@" | grep -q -e "$text"
}

ends_with() # STATUS COMMAND...
{
    want=$1
    shift
    "$@"
    [ $? = "$want" ]
}

for tool in bench doctor inspect pack report reproduce tokenize verify; do
    holds "lather-$tool is where programs are" says "[Uu]sage: .*$tool" "$prefix/bin/lather-$tool" --help
    holds "  and ends with 2 on a wrong command line" ends_with 2 "$prefix/bin/lather-$tool" --bogus
done
for program in "$prefix"/bin/*; do
    name=$(basename "$program")
    holds "$name has a manual page" grep -q "^\.TH $name " -i "$prefix/share/man/man1/$name.1"
done
holds "lather doctor starts lather-doctor" says "^usage: lather doctor" "$prefix/bin/lather" doctor --help
holds "lather-bench train ends with 2 on one too" ends_with 2 "$prefix/bin/lather-bench" train --bogus
holds "lather-inspect is called so" says "^Usage: lather-inspect" "$prefix/bin/lather-inspect" --help
cp "$root"/examples/*.c "$root"/examples/launch/* "$folder"
cp -r "$root"/examples/launch "$folder"
for name in $(cd "$root/examples" && echo *.c && cd launch && echo *.c); do
    holds "$name compiles against the installed headers as it says" compile "${name%.c}"
done
echo "/* No line. */ int main(void) { return 0; }" >"$folder/none.c"
holds "  and one without a command line fails" fails compile none
by_cmake() # VERSION
{
    sed "s/find_package(lather/& $1/" "$root/examples/CMakeLists.txt" >"$folder/CMakeLists.txt"
    cmake -S "$folder" -B "$folder/by-cmake" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$folder/by-cmake"
}

series=$(pkg-config --modversion lather | cut -d. -f1,2)
if command -v cmake >/dev/null 2>&1; then
    holds "all compile by find_package(lather)" by_cmake "$series"
    holds "  and a program built that way runs" "$folder/by-cmake/layer_scale"
    cmake_plugin=$folder/by-cmake/plugin_signum.so
    holds "  and a plugin" says "lion|adafactor|prodigy|signum" "$folder/own_resnet" --plugin "$cmake_plugin" --help optim
    holds "  but not for another version" fails by_cmake 9.1
else
    skipped=$((skipped + 1))
    echo "skipped: examples by CMake: there is no cmake"
fi
for name in evaluator evolution map_reduce parameter_server producers; do
    for on in threads local; do
        holds "the program $name runs on $on" "$prefix/bin/lather" launch "$folder/$name.ini" --on $on
    done
done
holds "the layer's gradient is right" "$folder/layer_scale"
holds "the optimizer lets a loss fall" "$folder/rmsprop"
holds "the optimizer with matrices does too" "$folder/one_sided"
holds "a network learns from numbers in memory" "$folder/arrays"
holds "a hook ends a run early" says "ended by stopper" "$folder/early_stop"
run="$folder/train --data stripes --optim shampoo --batch-size 32 --max-steps"
holds "a user's program trains on its registered data set" $run 20 --output "$folder/own" --progress off
holds "  it resumes from a checkpoint" says '"step":40' sh -c "$run 40 --output '$folder/own' --resume auto --progress off && cat '$folder/own/metrics.jsonl'"
holds "  its weights are evaluated" says "over 384 " "$folder/train" --eval --data stripes --weights "$folder/own/model.safetensors"
holds "  its option is one of its flags" says "--width" "$folder/train" --help
holds "  its data set is named where another is not found" says "or 'stripes'" sh -c "! '$folder/train' --data nosuch 2>&1"
chmod 755 "$folder/signum.so" "$folder/shapes.so"
plugins="--plugin $folder/signum.so --plugin $folder/shapes.so"
own="$folder/own_resnet $plugins --data shapes:24 --optim signum --arch resnet10 --width 4 --progress off --max-steps"
holds "a program with the library's networks trains by plugins" $own 2 --output "$folder/own-run"
holds "  it resumes" $own 4 --output "$folder/own-run" --resume auto
holds "  an unknown optimizer names the plugin" says "was trained with --plugin $folder/signum.so" \
    sh -c "! '$folder/own_resnet' --data shapes:24 --optim signum --output '$folder/own-run' --resume auto 2>&1"
matrices="$prefix/bin/train_resnet50 --plugin $folder/one_sided.so --optim one_sided --precondition-frequency 3 --data synthetic:64:16:4 \
    --arch resnet10 --width 4 --batch-size 16 --epochs 4 --progress off --max-steps"
if [ -x "$prefix/bin/train_resnet50" ]; then
    chmod 755 "$folder/one_sided.so"
    $matrices 8 --output "$folder/whole" >/dev/null 2>&1
    holds "the optimizer with matrices is a plugin" $matrices 4 --output "$folder/halves"
    holds "  it resumes" $matrices 8 --output "$folder/halves" --resume auto
    holds "  bit for bit" cmp "$folder/whole/model.safetensors" "$folder/halves/model.safetensors"
fi
python3 -c 'import sys
sys.stdout.buffer.write(b"".join(bytes([i % 10]) + bytes((i * 7 + k) % 256 for k in range(3072))
                                 for i in range(50)))' >"$folder/batch.bin"
by_readme() # FOLDER: its last command
{
    (cd "$1" && eval "$(sed -n 's/^    \(mkdir.*\)/\1/p' README.md)" && eval "$(sed -n 's/^    \(cc .*\)/\1/p' README.md)")
}

for kind in optimizer dataset model op; do
    holds "lather new writes $kind" "$prefix/bin/lather" new $kind mine --folder "$folder/new-$kind"
    holds "  which passes its test by the commands of its README" by_readme "$folder/new-$kind"
done
for device in ref cpu; do
    holds "the operation's gradients are right on $device" "$folder/swish" $device
done
holds "the data set is read" sh -c "$folder/cifar10 $folder/batch.bin >$folder/labels"
holds "every label is counted" grep -q "^50 images: 5 5 5 5 5 5 5 5 5 5\$" "$folder/labels"
holds "no such file is an error" fails "$folder/cifar10" "$folder/none.bin"
if [ -x "$prefix/bin/train_resnet50" ]; then
    holds "weights are made" "$prefix/bin/train_resnet50" --data synthetic:16:224:6 --arch resnet18 \
        --width 8 --batch-size 8 --epochs 1 --stem imagenet --progress off --output "$folder/run"
    weights=$(ls -d "$folder"/run/checkpoints/step-*/model.safetensors 2>/dev/null | tail -1)
    holds "the classifier agrees with predict" same_classes "$weights" \
        "$root/tests/tools/gradient.jpg"
    holds "the weights are exported" "$prefix/bin/train_resnet50" export --weights "$weights" \
        --image-size 224 --output "$folder/model.onnx"
    holds "the ONNX model gives the classifier's order" same_logits
    holds "broken models are an error" fails "$folder/onnx" "$folder/batch.bin" \
        "$root/tests/tools/gradient.jpg"
    holds "a missing image is an error" fails "$folder/classify" "$weights" "$folder/none.jpg"
fi
holds "broken weights are an error" fails "$folder/classify" "$folder/batch.bin" \
    "$root/tests/tools/gradient.jpg"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
