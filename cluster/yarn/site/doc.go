// Package site finds the Hadoop that a request means: its configuration and the user there.
package site
