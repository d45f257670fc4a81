"""One service a node prepares samples for independent processes; `preprocess.sharing.loader` is their end of it."""
