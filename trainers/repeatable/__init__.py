"""The same bits again: levels of determinism, instruction sets, operators, random states."""
