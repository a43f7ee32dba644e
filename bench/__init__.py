"""The measurements behind the README: ours and a peer side by side, in one run."""
