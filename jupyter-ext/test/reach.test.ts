import { reach } from "../src/reach";
import { fakeGet } from "./fakes";

const path = "tfcluster/a/00112233445566778899aabbccddeeff/";
const servers = (...names: string[]): [number, string] => [
  200,
  JSON.stringify({ server_processes: names.map((name) => ({ name })) }),
];

test("a board that answers is asked once, below the base URL", async () => {
  const get = fakeGet({ "data/environment": [200, "{}"] });
  await reach(get, "http://h/user/ana/", path);
  expect(get.asked).toEqual([`http://h/user/ana/${path}data/environment`]);
});

test.each([
  ["no jupyter-server-proxy", {}, "pip install jupyter-server-proxy"],
  ["not installed", { "servers-info": servers("rstudio") }, "run tfcluster install"],
  ["cluster gone", { "servers-info": servers("rstudio", "tfcluster") }, "%tfcluster tensorboard"],
  ["broken", { "data/environment": [502, "it ended\nmore"] as [number, string] }, "(HTTP 502): it ended"],
  [
    "an error page",
    { "data/environment": [500, "<html>no</html>"] as [number, string] },
    "(HTTP 500): status text. JupyterLab's log",
  ],
])("%s is told", async (_, answers: Record<string, [number, string]>, words) => {
  await expect(reach(fakeGet(answers), "/", path)).rejects.toThrow(words);
});
