// Package magics is %tfcluster: the verbs that a notebook's cells, the command line and
// the Python API have in common.
//
// A [Session] is what one kernel, gate or command runs its lines with: it reads them with
// the table of verbs (package command, rows in package verbs), and keeps the clusters that
// it holds (package session). It runs cells made of magics alone ([Session.Run]), words
// ([Session.RunArgv]) and, through a gate (package bridge), what Python code asks for.
// It emits through an output (package render) and gives a value or an error (package
// result); output and Python's objects are given by whoever runs it.
//
// Imports go one way: magics → verbs → session, bridge → result → render → command.
package magics
