// Package driver is the process that owns one cluster: it hosts the coordinator,
// the backend's allocation and TensorBoard, serves clients on a unix socket of the
// same user, and outlives the kernel that started it. If it dies, its agents wait,
// and another driver takes over from its saved state.
//
// If the engine runs the driver (Hosted), clients dial it by TCP as agents do, and the
// process on the user's host is a proxy: it submits the driver to the engine, finds it
// again after a restart, and forwards clients' calls. The cluster does not depend on it.
package driver
