package hosts

import (
	"math/rand/v2"
	"regexp"
	"strconv"
	"time"
)

// checkpoints is a program whose chief writes a checkpoint of three files each second, in TensorFlow's order: the
// contents first, the file that names the newest last. A task that takes up a checkpoint says whether it is whole.
const checkpoints = placed + `
import pathlib
folder, size = pathlib.Path(ctx.checkpoint_dir), 40_000_000
events = open(ctx.log_dir + f"/events.out.tfevents.{time.time():.0f}.{socket.gethostname()}", "ab", buffering=0)

def files(n):
    return [folder / f"ckpt-{n}.{name}" for name in ("data-00000-of-00001", "index")]

def save(n):
    for path in files(n):
        path.write_bytes(bytes([n % 251]) * size)
    (folder / "checkpoint.tmp").write_text(f'model_checkpoint_path: "ckpt-{n}"\n')
    (folder / "checkpoint.tmp").rename(folder / "checkpoint")
    for old in files(n - 3):
        old.unlink(missing_ok=True)

n = 0
if (folder / "checkpoint").exists():
    n = int((folder / "checkpoint").read_text().split("-")[1].strip('"\n'))
    whole = all(path.read_bytes() == bytes([n % 251]) * size for path in files(n))
    print(f"{ctx.job_name}:{ctx.task_index} goes on from {n}: {'whole' if whole else 'torn'}", flush=True)
    sys.exit()
print("at work", flush=True)
while True:
    n += 1
    events.write(b"x" * 1000)
    if ctx.is_chief: save(n)
    time.sleep(1)
`

// taken is the line of a task that takes up a checkpoint.
var taken = regexp.MustCompile(`worker:\d goes on from (\d+): (\w+)`)

// files: the last whole checkpoint is taken up, by a restart and by --resume, when the chief's host vanishes in the
// middle of an upload.
func (s *site) files() {
	s.t.Helper()
	for _, restarts := range []string{"1", "0"} {
		options := []string{
			"--framework", "none", "--heartbeat-timeout", "8s", "--dir", s.results + "/restarts-" + restarts,
		}
		j := s.run(checkpoints, append(options, "--max-restarts", restarts)...)
		lost := j.host("worker:0")
		j.working(lost)
		time.Sleep(8*time.Second + rand.N(2*time.Second)) // it writes for half of the time, and sends for as long
		s.down(lost)
		code := j.ends()
		s.Up(lost)
		if restarts == "0" {
			s.checkLeft()
			j = s.run(checkpoints, append(options, "--resume")...)
			code = j.ends()
		}
		found := taken.FindAllStringSubmatch(j.String(), -1)
		s.t.Logf("%q", found)
		if code != 0 || len(found) != 2 {
			s.t.Fatalf("exit code %d:\n%s", code, j)
		}
		for _, task := range found {
			if n, err := strconv.Atoi(task[1]); err != nil || n < 1 || task[2] != "whole" {
				s.t.Errorf("%s", task[0])
			}
		}
		s.checkLeft()
	}
}
