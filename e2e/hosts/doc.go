// Package hosts tests clusters on several hosts (package clustertest/hosts) that share no disk: a notebook's host, a
// master's and two workers', with a real Spark or Hadoop on them, and what befalls hosts and their network.
package hosts
