package hosts

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tfcluster/tfcluster/cluster/clustertest"
)

// The environment variables with the number of cuts of TestCuts and the minutes of TestDelay; make test-long sets them.
const (
	cutsVar  = "TFCLUSTER_TEST_CUTS"
	delayVar = "TFCLUSTER_TEST_DELAY_MINUTES"
)

// cutSeed is the seed of the pairs and times of TestCuts.
const cutSeed = 36

// reduces is a program whose tasks add up a number again and again until the time is over, and report each step.
const reduces = placed + `
import numpy, tfcluster.collective as collective
end = time.time() + float(sys.argv[1])
step, last = 0, False
while not last:
    step += 1
    last = collective.all_reduce(numpy.array([float(time.time() > end)]))[0] > 0
    ctx.report(step=step)
    if step == 20: print("at work", flush=True)
    time.sleep(0.05)
`

// number returns the number in an environment variable, or skips the test.
func number(t *testing.T, name string) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		t.Skipf("long: make test-long sets %s", name)
	}
	return n
}

// TestCuts cuts random pairs of hosts for 5, 30 or 90 s: a run goes on or ends with the right cause, the next one works
// after the heal, and nothing is left on any host.
func TestCuts(t *testing.T) {
	n := number(t, cutsVar)
	for name, start := range map[string]func(testing.TB) *site{"Spark": sparkSite, "YARN": hadoopSite} {
		t.Run(name, func(t *testing.T) {
			random := rand.New(rand.NewPCG(cutSeed, uint64(len(name))))
			s := start(t)
			k := s.kernel()
			k.run("open('program.py', 'w').write('''" + reduces + "''')")
			options := append([]string{"%tfcluster reserve --workers 2 --framework none"}, s.options...)
			k.run(strings.Join(options, " "))
			all := append([]string{notebook, master}, workers...)
			for cut := range n / 2 {
				random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				length := []time.Duration{5, 30, 90}[random.IntN(3)] * time.Second
				k.survive(cut, all[0], all[1], length)
			}
			k.close()
			s.checkLeft()
		})
	}
}

// survive cuts two hosts during a run, and starts another one after the heal.
func (k *notebookKernel) survive(cut int, one, other string, length time.Duration) {
	t := k.s.t
	t.Helper()
	before := strings.Count(k.String(), atWork)
	run := k.send("%tfcluster start --wait program.py " + strconv.Itoa(int(length.Seconds())+10))
	for end := time.Now().Add(clustertest.Deadline); strings.Count(k.String(), atWork) < before+2; {
		if time.Now().After(end) {
			t.Fatalf("the run does not begin:\n%s", k)
		}
		time.Sleep(50 * time.Millisecond)
	}
	k.s.Cut(one, other)
	time.Sleep(length)
	k.s.Heal()
	succeeded, text := k.end(run)
	t.Logf("cut %d, %s and %s for %s: %t\n%s", cut, one, other, length, succeeded, text)
	_, text, _ = strings.Cut(text, atWork)
	if !succeeded && !isSilent(text, one) && !isSilent(text, other) {
		t.Errorf("cut %d: neither %s nor %s is the cause", cut, one, other)
	}
	if succeeded, text = k.end(k.send("%tfcluster start --wait program.py 1")); !succeeded {
		t.Errorf("cut %d: after it a run fails:\n%s", cut, text)
	}
}

// isSilent reports whether a cell says that a task's host is silent.
func isSilent(text, host string) bool { return silent("worker:[01]", host).MatchString(text) }

// TestDelay: a network that is slow and loses packets is not taken for a lost host.
func TestDelay(t *testing.T) {
	length := time.Duration(number(t, delayVar)) * time.Minute
	s := sparkSite(t)
	s.Delay(workers[0], 50*time.Millisecond, 0.02)
	j := s.run(strings.ReplaceAll(reduces, "sys.argv[1]", strconv.Itoa(int(length.Seconds()))), "--framework", "none")
	j.working(workers[0])
	time.Sleep(length)
	if code := j.ends(); code != 0 || strings.Contains(j.String(), "silent") || strings.Contains(j.String(), "lost") {
		t.Errorf("exit code %d:\n%s", code, j)
	}
	s.NoDelay(workers[0])
	s.checkLeft()
}
