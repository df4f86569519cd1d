//! The keys, for people.

/// The keys, for `?`.
pub(crate) const KEYS: &str = "\
1…7, Tab     screens: Needs you, Agents, Board, Queue, Graph, History, Machines
↑ ↓ j k      choose a row; PgUp PgDn g G go further
← →          columns of the board
Enter        open the issue: Tab goes on, i text, d changes, o log, h history
d, o         open its changes, or its log, at once
Esc, q       back; q on a screen leaves
/            only rows with this text

a            answer, approve, accept: what the row needs
r            return, reject, retry
t            tell the agent something while it works
s            stop the agent
p            pause or resume an agent
l            land, after a preview
v            revert what landed
c            comment: on a line of the changes (x removes it), or on the issue
u            undo your last operation, after a preview
:            any command of toft: :add \"Sell apples\"; ↑ brings back the last one
Ctrl-C       end commands that run; otherwise leave

Board: →2 means that two issues need it. Graph: ○ ready, · not ready, ◐ in progress, * on the critical path.

The line above the keys is the command that the first key runs.";
