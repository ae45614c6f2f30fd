"""The packages that `pip install` gets: the distributions of the server and the client, built, checked and installed.

test_distributions  builds them and installs their wheels where nothing is downloaded
__main__            `make install-check`: every documented way of installing, each from a clean environment (`ways`)
installed           what an installed server and client have to do
"""
