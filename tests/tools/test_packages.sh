#!/bin/sh
# tools/packages where another package manager holds a lock. apt-get, dpkg-query, sleep and date are scripts.
# $1: packages. Rows are sentences; the last line counts them.
set -u
packages=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

row() # SENTENCE COMMAND...
{
    name=$1
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $name"
        sed 's/^/  /' "$work/out"
    fi
}

put() # PROGRAM LINE...
{
    file=$work/bin/$1
    shift
    { echo '#!/bin/sh' && printf '%s\n' "$@"; } >"$file"
    chmod +x "$file"
}

# TRIES: how often a lock is in the way. PID's dpkg knows a package once apt-get install has run.
fresh()
{
    rm -rf "$work/bin" && mkdir "$work/bin"
    echo "$1" >"$work/tries"
    echo 0 >"$work/now"
    rm -f "$work/installed"
    put id 'echo 0'
    put dpkg-query "[ -f '$work/installed' ] && echo 'install ok installed'"
    put sleep "echo \$((\$(cat '$work/now') + 50 * \$1)) >'$work/now'"
    put date "cat '$work/now'"
    put apt-get '[ "${LC_ALL-}" = C ] || { echo "E: Sperre konnte nicht gesetzt werden"; exit 100; }' \
        "left=\$(cat '$work/tries')" \
        "echo \$((left - 1)) >'$work/tries'" \
        'if [ "$left" -gt 0 ]; then' \
        "    echo 'E: ${2-Could not get lock /var/lib/apt/lists/lock. It is held by process 4711 (apt-get)}'" \
        '    exit 100' \
        'fi' \
        "case \$* in *install*) touch '$work/installed' ;; esac"
}

install() # returns the exit status; the output is in $work/out
{
    PATH=$work/bin:$PATH "$packages" install data >"$work/out" 2>&1 </dev/null
}

says()
{
    [ "$(grep -c "$1" "$work/out")" = "$2" ]
}

fresh 0
row "without a lock no message names one" install
row "  at all" says waiting 0
fresh 3
row "a lock is waited for" install
row "  and the line says whose it is, once" says \
    "waiting up to 600 s .*lists/lock. It is held by process 4711" 1
row "  to the end" [ "$(cat "$work/now")" = 300 ]
fresh 100000
row "a lock that is never released ends the wait" eval '! install'
row "  after ten minutes, with a message" says "gave up waiting: Could not get lock" 1
fresh 1 "Unable to locate package x"
row "other failures are not waited for" install # one by one, as before
row "  at all" says waiting 0

echo "$passed passed, $failed failed, 0 skipped"
[ "$failed" = 0 ]
