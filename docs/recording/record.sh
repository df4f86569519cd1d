#!/usr/bin/env bash
# Records docs/recording/toft.svg: types commands into a terminal of its own (tmux), in a scratch repository with a scripted agent,
# and turns what the terminal showed into an SVG. Needs tmux, git and python3; usage: record.sh [PATH-TO-TOFT]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
toft=$(realpath "${1:-$here/../../target/debug/toft}")
scratch=$(mktemp -d)
socket=toft-recording-$$
tmux() { command tmux -L "$socket" -f /dev/null "$@"; }
trap 'tmux kill-server 2>/dev/null || true; rm -rf "$scratch" 2>/dev/null || { sleep 1; rm -rf "$scratch"; }' EXIT

mkdir -p "$scratch/home" "$scratch/bin" "$scratch/frames" "$scratch/shop"
ln -s "$toft" "$scratch/bin/toft"
cat > "$scratch/home/.gitconfig" <<'GIT'
[user]
    name = Ada
    email = ada@example.org
[init]
    defaultBranch = main
GIT
cat > "$scratch/home/.bashrc" <<'RC'
PS1='\[\e[32m\]shop\[\e[0m\] $ '
PROMPT_COMMAND=
RC
# The agent: it needs a moment, asks about one task, and commits its work for the others.
cat > "$scratch/agent.sh" <<'AGENT'
#!/bin/sh
title=$(sed -n '1s/^# [^:]*: <data>\(.*\)<\/data>$/\1/p')
echo "reading the brief"; sleep "1.$(( $$ % 9 ))"
case "$title" in
*gRPC*) exec toft finish waiting -m "The mobile team prefers REST. Shall I still do gRPC?" ;;
esac
echo "editing"; sleep "1.$(( $$ % 7 ))"
echo "$title" >> notes.md
toft save -m "half done" >/dev/null
echo "running tests"; sleep "1.$(( $$ % 5 ))"
git add -A && git commit -qm "$title" && echo "$title"
AGENT
chmod +x "$scratch/agent.sh"
cat > "$scratch/shop/plan.md" <<'PLAN'
- Pin the orders schema
- Write the orders API
- Offer the API over gRPC
- Add an index on customer
- Paginate the order list
- Retry failed payments
PLAN
cd "$scratch/shop"
export HOME=$scratch/home XDG_CONFIG_HOME= XDG_DATA_HOME= XDG_STATE_HOME=
git init -q && cp "$scratch/agent.sh" agent.sh && git add -A && git commit -qm "A shop"

tmux new-session -d -s rec -x 96 -y 23 "env -u TMUX PATH='$scratch/bin:$PATH' TERM=screen-256color USER=ada bash --noprofile -i"
tmux set-option -g status off
frame=0
look() {
    tmux capture-pane -t rec -p -e > "$(printf '%s/frames/%04d' "$scratch" "$frame")"
    frame=$((frame + 1))
}
# Captures a frame every quarter of a second until the prompt is back, or for the given number of frames.
watch() {
    for _ in $(seq "$1"); do
        sleep 0.25; look
        if tmux capture-pane -t rec -p | grep -v '^$' | tail -1 | grep -q '^shop \$ *$'; then break; fi
    done
}
typed() {
    local text=$1
    while [ -n "$text" ]; do
        tmux send-keys -t rec -l -- "${text:0:6}"; text=${text:6}
        sleep 0.08; look
    done
    tmux send-keys -t rec Enter
    watch "${2:-20}"
    for _ in $(seq "${3:-6}"); do look; done
}
sleep 0.5
typed "toft init && toft add - < plan.md" 20 10
typed "clear" 4 0
typed "toft run --slots 3 --until-idle -- ./agent.sh" 120 12
typed "toft status" 20 12
typed "git log --oneline --branches" 20 24

python3 "$here/svg.py" "$scratch/frames" > "$scratch/toft.svg"
mv "$scratch/toft.svg" "$here/toft.svg"
ls -l "$here/toft.svg"
