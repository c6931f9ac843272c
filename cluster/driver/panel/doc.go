// Package panel decides what the panels of a cluster receive: Pacer which statuses, and when; Samples keeps what the
// tasks used in the last hour. It is pure: it does no I/O and reads no clock but for the time at which Samples begins.
package panel
