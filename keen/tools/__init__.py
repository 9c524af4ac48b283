"""The tools of a model, and who decides about their calls.

base                          what a tool is: `Tool`, `Context`, `Access`, `PreparedCall`
read_file write_file edit_file glob grep bash web_fetch ask_user todo task skill recall
                              one tool each
guard                         where a path leads, and what kind of place that is; the fixed
                              places are in `_known_places`
permission/                   may this call run: modes, rules, what a person allowed
shell/                        may this command line run: plain reads, dangers
sandbox/                      what holds a command while it runs

Beside them, each for one thing: `_files` puts what an editor has open before the disk, `_atomic`
opens and replaces files without following links, `_process` runs a command with `_environment`,
`_limits`, `_spool` and `_launch`, `jobs` keeps those in the background, `_address` judges where a
fetch may go.
"""
