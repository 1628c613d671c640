package hostile

import (
	"net/http"
	"path/filepath"
	"testing"

	"varve/e2e/process"
)

// bySenders runs an attack on a server of its own for each kind of attacker: on one that asks
// nobody for a token, and on one that does, with a token of the roles read, write and delete and
// without any. The bystander has a token where one is asked for.
func bySenders(t *testing.T, flags []string, attack func(t *testing.T, w *ward)) {
	t.Run("nobody is asked", func(t *testing.T) { attack(t, guard(t, flags...)) })
	for name, known := range map[string]bool{"a token": true, "no token": false} {
		t.Run(name, func(t *testing.T) { attack(t, guardAsking(t, known, flags...)) })
	}
}

// overBoth is bySenders, and runs the attack over TLS too, with a token.
func overBoth(t *testing.T, flags []string, attack func(t *testing.T, w *ward)) {
	bySenders(t, flags, attack)
	t.Run("over TLS", func(t *testing.T) {
		w, s := guardSecured(t, flags...)
		w.showsToken(s)
		attack(t, w)
	})
}

// showsToken makes attackers show the token of a server that asks for one.
func (w *ward) showsToken(s *process.Secured) { w.shows = "Authorization: Bearer " + s.Token + "\r\n" }

// guardAsking is guard for a server that asks for tokens. The attacker has one if known is set.
func guardAsking(t *testing.T, known bool, flags ...string) *ward {
	t.Helper()
	skip(t)
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	own, attackers := process.Token(t, tokens, "bystander", "admin"), process.Token(t, tokens, "attacker", "read,write,delete")
	dir, flags := t.TempDir(), withStore(t, append([]string{"--auth-enabled=true", "--auth-token-file=" + tokens}, flags...))
	s := process.Start(t, dir, flags...)
	s.Show(own)
	w := watch(t, s, dir, flags)
	plain := &process.Server{Client: &http.Client{Timeout: process.AnswerWithin, Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	t.Cleanup(plain.Client.CloseIdleConnections)
	if known {
		plain.Show(attackers)
		w.shows = "Authorization: Bearer " + attackers + "\r\n"
	}
	w.attacker, w.stranger = plain, !known
	return w
}

// public are the paths that answer a sender without a token.
var public = map[string]bool{"/api/v1/version": true, "/functions": true}

// turnsAway refuses an answer to a stranger that lets him do something.
func (w *ward) turnsAway(method, path string, status int) {
	w.t.Helper()
	if w.stranger && status/100 == 2 && !public[path] && method != http.MethodOptions {
		w.t.Errorf("%s %s: a stranger is answered %d", method, path, status)
	}
}
