"""What a command line is, judged by its text before it runs.

verdict         may it run: plain reads unasked, dangers never unasked, the rest on asking
syntax          how bash reads it: simple commands, and what about its syntax is not plain
second_reading  the same words by an independent reading; plain is only where both agree
places          where a command may start, what its words lead to there, what globs match
plain           is a simple command a plain read: options and operands, one by one
plain_programs  the table of programs that only read, each with its options
trees           what a recursive search would show: secrets, hidden files
dangers         what makes a simple command dangerous, and how else its words can be read
git_dangers     the same for git
risky_programs  the table of programs that never run unasked

Nothing here knows of modes, rules or sandboxes.
"""
