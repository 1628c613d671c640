// Package graphite proves that the programs of a Graphite installation work with Varve:
// a graphite-web in front of it, senders whose output must arrive whole, and the
// reader of Whisper's files. They
// run as processes against the real server, with the settings that the docs have.
//
// TestRandomQuestions asks Varve, and a graphite-web with the files of a carbon, the same
// random questions about the same samples and events. It asks a few hundred; for more, and for others:
//
//	go test ./e2e/graphite -run TestRandomQuestions -v -timeout 1h -graphite.questions 10000 -graphite.seed 2
//
// known_test.go lists the differences that it accepts.
//
// Programs that cannot be had on a machine are skipped, and the test says loudly which
// and why. With -short all tests are skipped.
package graphite
