"""Places that are the same for everybody: what holds credentials, what other programs run later."""

from __future__ import annotations

from pathlib import Path
from typing import Final

HIDDEN: Final = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh",
    ".netrc", ".git-credentials", ".npmrc", ".pypirc", ".keen", ".claude", ".codex", ".gemini",
    ".mozilla", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware",
    "Library/Keychains", "Library/Cookies", "Library/Application Support/Google/Chrome",
    "Library/Application Support/Firefox", ".local/share/keyrings", ".password-store",
    ".thunderbird", ".config/microsoft-edge", ".config/vivaldi", "snap/firefox", ".config/op",
    ".config/hub", ".config/glab-cli", ".config/rclone", ".config/doctl", ".config/sops",
    ".config/containers/auth.json", ".oci", ".fly", ".boto", ".s3cfg", ".vault-token", ".pgpass",
    ".my.cnf", ".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials",
    ".terraform.d/credentials.tfrc.json", ".huggingface/token", ".cache/huggingface/token",
    ".bash_history", ".zsh_history", ".local/share/fish/fish_history", ".python_history",
    ".node_repl_history", ".psql_history", ".mysql_history", ".Xauthority", ".ICEauthority",
    ".local/share/kwalletd", ".pki",
)  # fmt: skip
"""Below the home directory: what holds credentials, and what people type them into."""

SOCKETS: Final = (Path("/run"), Path("/var/run"), Path("/private/var/run"))
"""Docker, dbus, ssh-agent listen here."""

PEERS: Final = (
    ".claude", ".codex", ".gemini", ".cursor", ".agents", ".vscode", ".idea", ".mcp.json",
    ".envrc", ".husky", ".pre-commit-config.yaml",
)  # fmt: skip
"""What another program reads and runs later, at any depth."""

LOGIN: Final = (
    ".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile",
    ".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout", ".inputrc", ".gitconfig",
    ".config/fish", ".config/git", ".config/autostart", ".config/systemd", ".config/environment.d",
    ".xprofile", ".xinitrc", ".xsessionrc", ".pam_environment", "Library/LaunchAgents",
)  # fmt: skip
"""Below the home directory: what the next login runs."""
