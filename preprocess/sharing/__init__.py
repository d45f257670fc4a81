"""A service of each node that prepares samples for independent processes; `preprocess.sharing.loader` is their end."""
