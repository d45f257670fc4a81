"""The ring in a node's shared memory: lanes, who writes them and who reads them."""
