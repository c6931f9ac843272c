// Package site finds the Hadoop configuration and the user of a request.
package site
