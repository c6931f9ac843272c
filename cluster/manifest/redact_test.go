package manifest

import (
	"slices"
	"strings"
	"testing"

	"github.com/tfcluster/tfcluster/cluster/clusterpb"
)

func TestSecretVariables(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"HF_TOKEN": true, "WANDB_API_KEY": true, "DB_PASSWORD": true, "MYSQL_PWD": true, "AWS_REGION": true,
		"AZURE_STORAGE_SAS": true, "SSH_AUTH_SOCK": true, "GOOGLE_APPLICATION_CREDENTIALS": true,
		"HADOOP_TOKEN_FILE_LOCATION": true, "SENTRY_DSN": true, "my_secret": true, "KRB5_PASSPHRASE": true, "SSHPASS": true,
		"DBPASS": true, "APP_PWD": true, "ROOTPWD": true, "GITHUB_PAT": true, "PATH_PATTERN": false, "PWD": false,
		"OLDPWD": false, "PATH": false, "TOKENIZERS_PARALLELISM": false, "KERAS_BACKEND": false,
		"TF_NUM_INTRAOP_THREADS": false, "": false,
	} {
		if got := IsSecretVariable(name); got != want {
			t.Errorf("IsSecretVariable(%q) = %v", name, got)
		}
	}
}

func TestSecretNames(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"--api-key": true, "apiKey": true, "apikey": true, "API_KEY": true, "hf_token": true, "token": true, "password": true,
		"db.password": true, "keyStorePassword": true, "secret_name": true, "key": true, "credentials_file": true,
		"key_dim": false, "num_keys": false, "max_tokens": false, "tokenizer": false, "token_type_ids": false,
		"author": false, "lr": false, "passes": false, "": false, "--": false,
	} {
		if got := IsSecretName(name); got != want {
			t.Errorf("IsSecretName(%q) = %v", name, got)
		}
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://me:pass@host/x?a=1":                                              "https://…@host/x?a=1",
		"hdfs://nn:8020/data":                                                     "hdfs://nn:8020/data",
		"https://host/x?sig=abc%3D&n=2":                                           "https://host/x?sig=…&n=2",
		"-Xmx1g -Dtrust.storePassword=abc -Da=b":                                  "-Xmx1g -Dtrust.storePassword=… -Da=b",
		`{'api_key': 'a b', 'lr': 0.1}`:                                           `{'api_key': '…', 'lr': 0.1}`,
		`{"token": "x", "max_tokens": 5}`:                                         `{"token": "…", "max_tokens": 5}`,
		"Authorization: Bearer abcdefgh12":                                        "Authorization: … …",
		"ghp_abcdefghijklmnop1234 and":                                            "… and",
		"-----BEGIN RSA PRIVATE KEY-----\nx\n-----END RSA PRIVATE KEY-----\nrest": "…\nrest",
		"key_dim=64":                         "key_dim=64",
		"token=":                             "token=",
		"url: token=ab":                      "url: token=…",
		`{'password': b'geheim', 'n': 1}`:    `{'password': b'…', 'n': 1}`,
		`{'auth': ('me', 'geheim'), 'n': 1}`: `{'auth': …, 'n': 1}`,
		`{'credentials': {'user': 'me', 'x': 'ge)heim'}, 'n': 1}`: `{'credentials': …, 'n': 1}`,
		`{'auth': ['me', 'gehe…`:                                  `{'auth': …`,
		`{'password': 'it\'s "geheim"', 'n': 1}`:                  `{'password': '…', 'n': 1}`,
		`['mysql', '--password', 'geheim', '-x']`:                 `['mysql', '--password', '…', '-x']`,
		`{'db': 'postgres://me:gehei…`:                            `{'db': 'postgres://…`,
		`['key', 'value']`:                                        `['key', 'value']`,
		"":                                                        "",
	} {
		if got := Redact(text); got != want {
			t.Errorf("Redact(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestRedactSource(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		`api_key: str = "geheim"`:                           `api_key: str = "…"`,
		`password: Optional[str] = 'geheim'`:                `password: Optional[str] = '…'`,
		`token: str | None = None; n = "x"`:                 `token: str | None = None; n = "x"`,
		`password = b"geheim"`:                              `password = b"…"`,
		`token = f"geheim-{n}"`:                             `token = f"…"`,
		"password = \"\"\"ge\nheim\"\"\"\nn = 1":            "password = \"\"\"…\"\"\"\nn = 1",
		`requests.get(u, auth=("me", "geheim"), timeout=1)`: `requests.get(u, auth=…, timeout=1)`,
		"token = (\"ge\"\n  \"heim\")\nn = 1":               "token = …\nn = 1",
		`os.environ.get("HF_TOKEN", "geheim")`:              `os.environ.get("HF_TOKEN", "…")`,
		`subprocess.run(["mysql", "--password", "geheim"])`: `subprocess.run(["mysql", "--password", "…"])`,
		`parser.add_argument("--api-key", type=str, default="geheim", n=1)`: `parser.add_argument("--api-key", type=str, ` +
			`default="…", n=1)`,
		`parser.add_argument("--lr", default="x")`: `parser.add_argument("--lr", default="x")`,
		`def f(n: int, token="geheim")`:            `def f(n: int, token="…")`,
		`def f(d: Dict[str, str], token="geheim")`: `def f(d: Dict[str, str], token="…")`,
		`else: token = "geheim"`:                   `else: token = "…"`,
		`d = {"token": x, "y": "z"}`:               `d = {"token": x, "y": "z"}`,
		`names = ["key", "value"]`:                 `names = ["key", "value"]`,
		`key = (1, 2)`:                             `key = (1, 2)`,
		`if token == "x": pass`:                    `if token == "x": pass`,
	} {
		if got := RedactSource(source); got != want {
			t.Errorf("RedactSource(%q) = %q, want %q", source, got, want)
		}
	}
	source := "def f(key=lambda x: x):\n    token = 'abc'\n    d['api_key'] = \"x\"\n    s = os.environ['HF_TOKEN']\n" +
		"    sorted(a, key=len)\n"
	want := "def f(key=lambda x: x):\n    token = '…'\n    d['api_key'] = \"…\"\n    s = os.environ['HF_TOKEN']\n" +
		"    sorted(a, key=len)\n"
	if got := RedactSource(source); got != want {
		t.Errorf("it is %q", got)
	}
}

func TestRedactWords(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ words, want []string }{
		{[]string{"--api-key", "abc", "--lr", "0.1"}, []string{"--api-key", "…", "--lr", "0.1"}},
		{[]string{"--token=abc", "x"}, []string{"--token=…", "x"}},
		{[]string{"--password", "--verbose"}, []string{"--password", "--verbose"}},
		{[]string{"-p", "-1"}, []string{"-p", "-1"}},
		{nil, []string{}},
	} {
		if got := RedactWords(tt.words); !slices.Equal(got, tt.want) {
			t.Errorf("RedactWords(%q) = %q", tt.words, got)
		}
	}
}

// TestClean: parts that a program may have written are bounded, and nothing secret is left.
func TestClean(t *testing.T) {
	t.Parallel()
	many := map[string]string{}
	for i := range 3 * maxEntries {
		many[strings.Repeat("n", i%500)+string(rune('a'+i%26))] = "1"
	}
	m := Clean(&clusterpb.TaskManifest{
		Packages: many, Sources: map[string]string{"big.py": strings.Repeat("x", maxSource+1), "a.py": "password = 'x'\xff"},
		Arguments: map[string]string{
			"api_key": "'abc'", "url": "https://u:p@h", "long": strings.Repeat("ü", 4000), "token_count": "5",
		},
		Code: map[string]string{"key": "0123"}, Seeds: map[string]string{},
		Data: map[string]*clusterpb.DataUse{"s3://k:s@b/x": {By: "local_copy"}, "none": nil},
	})
	if len(m.GetPackages()) > maxEntries || len(m.GetArguments()["long"]) > maxText+len(hidden) ||
		len(m.GetSources()) != 1 {
		t.Errorf("it is not bounded: %d packages, %d sources", len(m.GetPackages()), len(m.GetSources()))
	}
	a := m.GetArguments()
	if a["api_key"] != hidden || a["url"] != "https://…@h" || a["token_count"] != "5" || m.GetCode()["key"] != "0123" ||
		m.GetSources()["a.py"] != "password = '…'�" {
		t.Errorf("the entries are %v, %v, %q", a, m.GetCode(), m.GetSources())
	}
	if len(m.GetData()) != 1 || m.GetData()["s3://…@b/x"] == nil {
		t.Errorf("the data is %v", m.GetData())
	}
	if got := Variables(map[string]string{
		"TF_CONFIG": "{}", "A": "https://u:p@h", "X_TOKEN": "1", "TFCLUSTER_HOME": "/x", "RANK": "0",
	}); len(got) != 1 || got["A"] != "https://…@h" {
		t.Errorf("the variables are %v", got)
	}
}

// FuzzRedact: redacting is done once, does not grow much, and valid text stays valid.
func FuzzRedact(f *testing.F) {
	for _, seed := range []string{
		"token='a", "https://a:b@c key=v", "d[\"key\"] = 'x'", "-----BEGIN KEY-----", "apiKey: ", "Bearer aaaaaaaaaa",
		"pwd=\"\n\"", "auth=('a', \"b", "token: str = b'''a", "add('--key', default='x')", "key=(" +
			strings.Repeat("ü", maxBracket/2-2) + "'''",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, redact := range []func(string) string{Redact, RedactSource} {
			got := redact(text)
			if strings.ToValidUTF8(text, "") == text && strings.ToValidUTF8(got, "") != got {
				t.Errorf("%q became invalid: %q", text, got)
			}
			if strings.Contains(got, "://user:geheim@") || len(got) > 3*len(text)+10 {
				t.Errorf("%q became %q", text, got)
			}
		}
		RedactWords(strings.Fields(text))
		Arguments(strings.Fields(text))
	})
}
