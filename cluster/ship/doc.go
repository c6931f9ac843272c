// Package ship transfers a user's files (--files) and Python environment (--venv) to executors
// that share no disk with the driver.
//
// In the driver, a Store keeps each content on disk under its SHA-256. Place, Unpack and
// Environments are used by agents: they copy or unpack fetched contents and reject archive
// members outside of the target folder. An environment is unpacked once per host and user, and
// is kept for later clusters.
package ship
