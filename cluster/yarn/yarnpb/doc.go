// Package yarnpb holds the messages of Hadoop's IPC and of YARN's three protocols, as
// far as they are used: ipc.proto, records.proto and services.proto, whose names and
// numbers are Hadoop's. make proto generates the rest.
package yarnpb
