"""Tool search for AI agents: the right tool among ten or a hundred thousand, offline."""
