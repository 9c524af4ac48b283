"""What holds a command while it runs, and what is said when it was stopped.

confinement  starts a command within its bounds, as the policy's mode wants them
appeal       the question to a person after the sandbox stopped a command
denial       what a command's output says of the sandbox: denied, hidden
probe        which sandbox this machine has, by a self-test; puts it around a command
confines     what one command may see and change, looked up anew for each
bubblewrap   these bounds as bwrap's command line (Linux)
landlock     these bounds for files alone, where bwrap cannot run (Linux)
seatbelt     these bounds as a profile of sandbox-exec (macOS)
"""
