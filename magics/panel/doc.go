// Package panel serves tfcluster.v1, the comm between the kernel and the JupyterLab extension:
// the state of clusters while somebody looks, lines of tasks, curves, samples and actions.
//
// The front end opens a comm with the target Target on its notebook's own kernel connection. It
// is served beside a running cell. Messages are JSON objects with a type. A request has a number
// that its reply repeats; the front end may have 8 requests open.
//
//	{type:"show", cluster}                 → {type:"state", sequence, …}: now and after each change,
//	                                         until hide; see State
//	{type:"hide"}                          → nothing: no message is sent until the next show
//	{type:"ping"}                          → nothing; a comm without a message for 45 s is closed
//	{type:"tensorboard", id}               → {type:"tensorboard", id, path, logdir, curves}: of a cell's output
//	{type:"board", request, cluster}       → {type:"board", request, path}
//	{type:"runs", request, cluster}        → {type:"runs", request, runs}: without curves
//	{type:"curves", request, cluster, runs}→ {type:"curves", request, runs}
//	{type:"samples", request, cluster, after} → {type:"samples", request, tasks}
//	{type:"page", request, cluster, run, task, text, last, after, before} → {type:"page", request, run, lines, gap}
//	{type:"follow", request, cluster, run, task, text, last} →
//	                                         {type:"lines", request, run, lines, skipped, gap} repeatedly;
//	                                         {…, over:true} at the end
//	{type:"lines_path", request, cluster}  → {type:"lines_path", request, path}: the same by WebSocket, in full
//	{type:"unfollow"}                      → nothing; a comm follows once
//	{type:"act", request, verb, cluster, force} → {type:"acted", request, text} after the verb: stop, reset,
//	                                         shutdown, attach; force: shutdown ends an active run
//	what cannot be answered                → {type:"error", request, message}
//
// Pictures of state have a sequence number and are complete, because a server may drop messages.
// Every message but show, hide, ping and the replies is one that a person asked for, so that a
// hidden panel does not keep an idle notebook alive.
//
// jupyter-ext/testdata/comm.json has an example of each message, which the tests of both sides
// read.
package panel
