// Package ship carries what a person gives to executors that share no disk with the
// driver: files for their working directories (--files) and a Python environment
// (--venv).
//
// A Depot, in the driver, keeps each content on disk under its SHA-256. Unpack and
// Environments are the agent's: they unpack what was fetched, and what an archive
// names never lies outside of the folder that it is unpacked in. An environment is
// unpacked once a host and user, and stays for later clusters.
package ship
