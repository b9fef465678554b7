#!/bin/sh
# Runs the steps of a bootstrap once, one after another, and writes the result to disk.
#
# Files beside this script: steps.count, timeout (seconds), success-file (a path, may be absent),
# steps/N (a shell script) and steps/N.tar (files of step N).
# Files that this script writes: started (process id and its start time), step, stdout, stderr, and
# at the end result: "succeeded", "exited STEP CODE", "timedout STEP" or "nosuccess".
cd /var/lib/machinist/bootstrap || exit 1
umask 077

# The time since the boot of the host at which a process started: field 22 of its stat file.
born() {
    read -r line <"/proc/$1/stat" || return 1
    rest=${line##*) }
    # shellcheck disable=SC2086
    set -- $rest
    shift 19
    echo "$1"
}

# A hard link is created by exactly one caller, and with its content.
echo "$$ $(born $$)" >"claim.$$"
if ! ln "claim.$$" started 2>/dev/null; then
    rm -f "claim.$$"
    exit 0
fi
rm -f "claim.$$"

steps=$(cat steps.count)
timeout=$(cat timeout)

finish() {
    echo "$*" >result.new
    mv result.new result
    rm -rf steps
    exit 0
}

# Ends the present step when the time is over. Ends with the bootstrap.
watch() {
    left=$timeout
    while [ "$left" -gt 0 ]; do
        sleep 1
        [ ! -e result ] || exit 0
        left=$((left - 1))
    done
    : >expired
    read -r child <child || exit 0
    kill -TERM "-$child" 2>/dev/null || kill -TERM "$child" 2>/dev/null
    sleep 5
    kill -KILL "-$child" 2>/dev/null || kill -KILL "$child" 2>/dev/null
}
watch </dev/null >/dev/null 2>&1 &

new_session=
if command -v setsid >/dev/null 2>&1; then
    new_session=setsid
fi

step=0
while [ "$step" -lt "$steps" ]; do
    step=$((step + 1))
    [ ! -e expired ] || finish timedout "$step"
    echo "$step" >step.new
    mv step.new step
    (
        umask 022
        cd /
        exec $new_session sh "/var/lib/machinist/bootstrap/steps/$step"
    ) </dev/null >>stdout 2>>stderr &
    child=$!
    echo "$child" >child.new
    mv child.new child
    wait "$child"
    code=$?
    # The step may contain a secret.
    rm -f "steps/$step" "steps/$step.tar"
    [ ! -e expired ] || finish timedout "$step"
    [ "$code" -eq 0 ] || finish exited "$step" "$code"
done

if [ -e success-file ] && [ ! -e "$(cat success-file)" ]; then
    finish nosuccess
fi
finish succeeded
