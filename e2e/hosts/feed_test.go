package hosts

import "strings"

// feeds defines main_fun, which reads its feed and returns the sum of x. With args.predict it gives 2x as the result of
// each record; args.pause is the pause after each batch, in seconds.
const feeds = `
def main_fun(args, ctx):
    import socket, time
    feed, total, n = ctx.get_data_feed(), 0.0, 0
    print(f"{ctx.job_name}:{ctx.task_index} is on {socket.gethostname()}", flush=True)
    while (batch := feed.next_numpy(100)) is not None:
        total, n = total + batch["x"].sum(), n + 1
        if args.predict: feed.results(2 * batch["x"])
        if args.pause and n == 10: print("at work", flush=True)
        time.sleep(args.pause)
    return total
import types
args = types.SimpleNamespace(predict=False, pause=0)
`

// fed starts a kernel with a cluster whose tasks may be fed.
func (s *site) fed(options ...string) *notebookKernel {
	s.t.Helper()
	k := s.kernel()
	k.run(s.cells.session)
	reserve := append([]string{"%tfcluster reserve --workers 2 --framework none"}, s.cells.options...)
	k.run(strings.Join(append(reserve, options...), " "))
	k.run(feeds)
	return k
}

// feed: train and inference reach the tasks of other hosts, each record once.
func (s *site) feed() {
	s.t.Helper()
	k := s.fed()
	k.run("n = 20_000\ndata = " + s.cells.data)
	k.run("%tfcluster start --args args main_fun")
	s.t.Log(k.run("run = %tfcluster train data"))
	if got := k.run("print(sum(run.results.values()) == n * (n - 1) / 2, len(run.results))"); !strings.Contains(
		got, "True 2") {
		s.t.Errorf("the sum of what was fed is wrong: %s", got)
	}
	k.run("args.predict = True")
	k.run("%tfcluster start --args args main_fun")
	k.run("out = %tfcluster inference data")
	predicted := "(out.toPandas() if hasattr(out, 'toPandas') else out)['prediction']"
	if got := k.run("print(sorted(" + predicted + ") == [2.0 * i for i in range(n)])"); !strings.Contains(got, "True") {
		s.t.Errorf("the predictions are wrong: %s", got)
	}
	hosts := []string{k.host("worker:0"), k.host("worker:1")}
	if hosts[0] == hosts[1] {
		s.t.Errorf("both tasks are on %s", hosts[0])
	}
	k.close()
	s.checkLeft()
}

// lostFeed: the host that vanishes while data is fed is the cause.
func (s *site) lostFeed() {
	s.t.Helper()
	lost := workers[0]
	k := s.fed("--heartbeat-timeout 8s")
	k.run("n = 2_000_000\nargs.pause = 0.1\ndata = " + s.cells.data)
	k.run("%tfcluster start --args args main_fun")
	cell := k.send("%tfcluster train data")
	task := k.working(lost)
	s.down(lost)
	succeeded, text := k.end(cell)
	s.Up(lost)
	_, text, _ = strings.Cut(text, atWork)
	s.t.Log(text)
	if succeeded || !silent(task, lost).MatchString(text) || strings.Contains(text, "fix the program") {
		s.t.Error("the lost host is not the cause")
	}
	k.close()
	s.checkLeft()
}
