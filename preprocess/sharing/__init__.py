"""One service a node prepares samples for independent processes; `preprocess.loader` is their end of it."""
