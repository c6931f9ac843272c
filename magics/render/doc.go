// Package render shows clusters, runs and tasks' lines: as plain text, and as HTML that fits light
// and dark themes. It writes through small interfaces ([Writer], [Displayer]).
package render
