// Package graphite tests that the programs of a Graphite installation work with Varve:
// a graphite-web in front of it, senders whose points must all arrive, and the reader
// of Whisper's files. They run as processes against the real server, with the settings
// of the documentation.
//
// TestRandomQuestions sends the same random questions about the same samples and events to Varve and
// to a graphite-web with the files of a carbon. It sends a few hundred. To send more, or others:
//
//	go test ./e2e/graphite -run TestRandomQuestions -v -timeout 1h -graphite.questions 10000 -graphite.seed 2
//
// known_test.go lists the differences that it accepts.
//
// Programs that are not available on a machine are skipped, and the test reports which
// and why. With -short all tests are skipped.
package graphite
