"""What a Python that a test starts reads first: the nursery forks the process, and this one stands for it.

It imports little, since it comes before everything else.
"""

import os

if os.environ.get("FLEET_WARM"):
    from stand_in import be_forked

    be_forked(os.environ["FLEET_WARM"])
