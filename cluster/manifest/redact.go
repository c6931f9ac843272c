package manifest

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// hidden replaces a secret, and the rest of a text that is too long.
const hidden = "…"

// IsSecretVariable reports whether an environment variable of this name may have a secret value. It rather hides too
// much: any program may have set the variable.
func IsSecretVariable(name string) bool {
	upper := strings.ToUpper(name)
	switch {
	case upper == "PWD", upper == "OLDPWD", upper == "TOKENIZERS_PARALLELISM":
		return false
	case strings.HasPrefix(upper, "AWS_"), strings.HasPrefix(upper, "AZURE_"):
		return true
	}
	for _, part := range []string{"TOKEN", "SECRET", "PASSW", "PASSPHRASE", "KEY", "CREDENTIAL", "COOKIE", "PRIVATE", "SIGNATURE", "WEBHOOK", "AUTH", "CONNECTION_STRING"} {
		if strings.Contains(upper, part) {
			return true
		}
	}
	return IsSecretName(name)
}

// IsSecretName reports whether an argument of this name has a secret value: api_key and hf-token, but not key_dim,
// max_tokens and tokenizer.
func IsSecretName(name string) bool {
	words := wordsOf(name)
	for i, w := range words {
		switch w {
		case "secret", "secrets", "password", "passwd", "passphrase", "credential", "credentials":
			return true
		case "token", "pass", "pwd", "auth", "authorization", "cookie", "signature", "sig", "sas", "dsn", "jwt", "webhook":
			if i == len(words)-1 {
				return true
			}
		}
	}
	if len(words) == 0 {
		return false
	}
	last := words[len(words)-1]
	return slices.ContainsFunc([]string{"key", "token", "secret", "password", "passwd"}, func(end string) bool { return strings.HasSuffix(last, end) })
}

// wordsOf splits a name in its words, in lower case: at underscores and other signs, and in camelCase.
func wordsOf(name string) []string {
	var words []string
	start, before := true, rune(0)
	for _, r := range name {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			start = true
			continue
		}
		if start || unicode.IsUpper(r) && unicode.IsLower(before) {
			words, start = append(words, ""), false
		}
		words[len(words)-1] += string(unicode.ToLower(r))
		before = r
	}
	return words
}

// replacement is a pattern and what replaces its matches.
type replacement struct {
	pattern *regexp.Regexp
	with    string
}

// secretForms match secrets by their form: private keys, the credentials in a URL, of HTTP, and tokens of known services.
var secretForms = sync.OnceValue(func() []replacement {
	return []replacement{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*KEY-----.*?(-----END [A-Z ]*-----|$)`), hidden},
		{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s'"]*@`), "${1}" + hidden + "@"},
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "${1} " + hidden},
		{regexp.MustCompile(`\b(gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|ASIA|eyJ)[A-Za-z0-9_.-]{12,}`), hidden},
	}
})

// assignment matches NAME=, NAME: and "NAME": before a value.
var assignment = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([\w.-]+)["']?\]?\s*[=:]\s*(["']?)`)
})

// Redact returns a text without what looks like a secret.
func Redact(text string) string { return hideAssigned(hideForms(text), false) }

// RedactSource is Redact for the text of a program, where only quoted texts are values.
func RedactSource(text string) string { return hideAssigned(hideForms(text), true) }

func hideForms(text string) string {
	for _, r := range secretForms() {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// hideAssigned hides the values of secret names: all, or only those in quotes.
func hideAssigned(text string, quotedOnly bool) string {
	var shown strings.Builder
	done := 0
	for _, at := range assignment().FindAllStringSubmatchIndex(text, -1) {
		quote := text[at[4]:at[5]]
		if at[0] < done || quotedOnly && quote == "" || !IsSecretName(text[at[2]:at[3]]) {
			continue
		}
		ends := quote + "\n"
		if quote == "" {
			ends = " \t\n\"'&,;})]"
		}
		end := strings.IndexAny(text[at[1]:], ends)
		if end < 0 {
			end = len(text) - at[1]
		}
		if end == 0 {
			continue
		}
		shown.WriteString(text[done:at[1]] + hidden)
		done = at[1] + end
	}
	return shown.String() + text[done:]
}

// RedactWords returns the words of a command line without what looks like a secret: also not the word after an option
// with the name of a secret.
func RedactWords(words []string) []string {
	shown := make([]string, len(words))
	for i, w := range words {
		shown[i] = Redact(w)
		if i > 0 && isOption(words[i-1]) && !strings.Contains(words[i-1], "=") && !isOption(w) && IsSecretName(words[i-1]) {
			shown[i] = hidden
		}
	}
	return shown
}

// isOption reports whether a word is the name of an option: -x or --name, but not a number.
func isOption(word string) bool {
	return len(word) > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.'
}
