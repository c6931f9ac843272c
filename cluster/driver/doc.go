// Package driver is the process that owns one cluster: it hosts the coordinator,
// the backend's allocation and TensorBoard, serves clients on a unix socket of the
// same user, and outlives the kernel that started it. When it dies its agents wait,
// and another driver takes over from the state it saved.
//
// Where the engine runs the driver (Hosted), clients dial it as agents do, by TCP, and
// the process on the user's host is a proxy: it has the engine start the driver, finds
// it wherever it is started again, and hands it what clients ask. The cluster lives
// without it.
package driver
