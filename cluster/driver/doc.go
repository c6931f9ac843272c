// Package driver is the process that owns one cluster: it hosts the coordinator,
// the backend's allocation and TensorBoard, serves clients on a unix socket of the
// same user, and outlives the kernel that started it. When it dies its agents wait,
// and another driver takes over from the state it saved.
package driver
