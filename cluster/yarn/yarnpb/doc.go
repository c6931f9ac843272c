// Package yarnpb has the messages of Hadoop's IPC and of YARN's three protocols that this program uses:
// ipc.proto, records.proto and services.proto, with Hadoop's names and numbers. make proto generates the
// rest.
package yarnpb
