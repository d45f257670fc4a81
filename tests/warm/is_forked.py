"""Says whether the nursery forked this process."""

import sys

print("torch" in sys.modules)
