package manifest

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
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
	for _, part := range []string{
		"TOKEN", "SECRET", "PASSW", "PASSPHRASE", "KEY", "CREDENTIAL", "COOKIE", "PRIVATE", "SIGNATURE", "WEBHOOK", "AUTH",
		"CONNECTION_STRING",
	} {
		if strings.Contains(upper, part) {
			return true
		}
	}
	ends := []string{"PASS", "PWD", "_PAT"} // SSHPASS, ROOTPWD, GITHUB_PAT
	return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(upper, end) }) || IsSecretName(name)
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
	return slices.ContainsFunc([]string{"key", "token", "secret", "password", "passwd"},
		func(end string) bool { return strings.HasSuffix(last, end) })
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

// secretForms match secrets by their form: private keys, the credentials in a URL, of HTTP, and
// tokens of known services.
var secretForms = sync.OnceValue(func() []replacement {
	return []replacement{
		{regexp.MustCompile(`(?s)-----BEGIN [A-Z ]*KEY-----.*?(-----END [A-Z ]*-----|$)`), hidden},
		{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s'"]*@`), "${1}" + hidden + "@"},
		{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s'"]*` + hidden + `$`), "${1}" + hidden}, // cut before the @
		{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`), "${1} " + hidden},
		{
			regexp.MustCompile(`\b(gh[pousr]_|github_pat_|glpat-|hf_|sk-|xox[abprs]-|AKIA|ASIA|eyJ)[A-Za-z0-9_.-]{12,}`), hidden,
		},
	}
})

// before matches what stands before a value: its name, the quote after the name, and the sign between them.
//
//	NAME=  NAME:  "NAME":  ["NAME"] =  "NAME",
var before = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([\w.-]+)(["']?)\]?\s*([=:,])\s*`)
})

// beforeInSource is before in a program, where a type may follow the name: NAME: str = "value".
var beforeInSource = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`([\w.-]+)(["']?)\]?\s*(:[\w.| ]+(?:\[[\w.\[\], |]*\][\w.| ]*)?=|[=:,])\s*`)
})

// beforeDefault matches the names of an option of argparse or click, up to the value of its default.
var beforeDefault = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`((?:["']-[\w-]+["']\s*,\s*)+)[^()]*?\bdefault\s*=\s*`)
})

// quoted matches the beginning of a string of Python.
var quoted = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile("^[bBrRuUfF]{0,2}(\"\"\"|'''|[\"'])") })

// Redact returns a text without what looks like a secret.
func Redact(text string) string {
	return hideValues(hideForms(text), before(), isSecretValue, false)
}

// RedactSource is Redact for the text of a program, where only quoted texts are values.
func RedactSource(text string) string {
	text = hideValues(hideForms(text), beforeInSource(), isSecretValue, true)
	return hideValues(text, beforeDefault(), func(options []string, _ string) bool {
		return slices.ContainsFunc(
			strings.FieldsFunc(options[1], func(r rune) bool { return strings.ContainsRune("\"', \t\n", r) }), IsSecretName)
	}, true)
}

func hideForms(text string) string {
	for _, r := range secretForms() {
		text = r.pattern.ReplaceAllString(text, r.with)
	}
	return text
}

// isSecretValue reports whether the value after a match of before has the name of a secret. In a list, a quoted text
// after another one is its value if that is an option or a variable of the environment.
func isSecretValue(match []string, value string) bool {
	name := match[1]
	if match[3] == "," &&
		(match[2] == "" || !quoted().MatchString(value) || name[0] != '-' && name != strings.ToUpper(name)) {
		return false
	}
	// What looks like a type may be the name itself: else: token = "value".
	return IsSecretName(name) ||
		len(match[3]) > 1 && slices.ContainsFunc(strings.Fields(strings.Trim(match[3], ":=")), IsSecretName)
}

// hideValues hides the values that follow matches of a pattern and are secret: all, or only quoted texts and brackets
// with such.
func hideValues(text string, pattern *regexp.Regexp, secret func(match []string, value string) bool,
	quotedOnly bool,
) string {
	var shown strings.Builder
	done := 0
	for _, at := range pattern.FindAllStringSubmatchIndex(text, -1) {
		if at[0] < done {
			continue
		}
		var match []string
		for i := 0; i < len(at); i += 2 {
			match = append(match, text[at[i]:at[i+1]])
		}
		value := text[at[1]:]
		if !secret(match, value) {
			continue
		}
		if start, end := extent(value, quotedOnly); end > start {
			shown.WriteString(text[done:at[1]+start] + hidden)
			done = at[1] + end
		}
	}
	return shown.String() + text[done:]
}

// extent returns where the value at the beginning of a text starts and ends: what is within the quotes, a bracket with
// its contents, or a word. With quotedOnly a word is none, nor is a bracket without quotes.
func extent(text string, quotedOnly bool) (start, end int) {
	if quote := quoted().FindStringSubmatch(text); quote != nil {
		return len(quote[0]), len(quote[0]) + toQuote(text[len(quote[0]):], quote[1])
	}
	if text != "" && strings.IndexByte("([{", text[0]) >= 0 {
		if end = toBracket(text); quotedOnly && !strings.ContainsAny(text[:end], `"'`) {
			return 0, 0
		}
		return 0, end
	}
	if quotedOnly {
		return 0, 0
	}
	if end = strings.IndexAny(text, " \t\n\"'&,;})]"); end < 0 {
		end = len(text)
	}
	return 0, end
}

// toQuote returns where a quoted text ends: at the quote, at the end of the line unless the quote is a triple one, or
// at the end of the text, which may have been cut.
func toQuote(text, quote string) int {
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\':
			i++
		case strings.HasPrefix(text[i:], quote), text[i] == '\n' && len(quote) == 1:
			return i
		}
	}
	return len(text)
}

// maxBracket bounds the search for the end of a bracket, in bytes.
const maxBracket = 4096

// toBracket returns where the bracket ends with which a text begins. Without an end, as in a text that was cut, it is
// the end of the text, up to maxBracket.
func toBracket(text string) int {
	limit := min(len(text), maxBracket)
	depth := 0
	for i := 0; i < limit; i++ {
		switch c := text[i]; c {
		case '(', '[', '{':
			depth++
		case ')', ']', '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"', '\'':
			quote := quoted().FindStringSubmatch(text[i:limit])[1]
			i += len(quote) + toQuote(text[i+len(quote):limit], quote) + len(quote) - 1
		}
	}
	for limit < len(text) && !utf8.RuneStart(text[limit]) {
		limit++
	}
	return limit
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
