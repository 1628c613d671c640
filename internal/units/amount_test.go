package units

import (
	"testing"
	"time"
)

// An error about a setting writes times as a configuration file has them.
func TestBounds(t *testing.T) {
	type settings struct {
		Span  time.Duration `yaml:"span" want:"1m to 744h"`
		Grace time.Duration `yaml:"grace" want:"0s to 1h"`
		Least time.Duration `yaml:"least" want:"at least 1m"`
		Wait  time.Duration `yaml:"wait" want:"positive"`
		Hold  time.Duration `tune:"hold" want:"not negative"`
		Size  Bytes         `tune:"size" want:"1KiB to 1MiB, or 0"`
		Count int64         `tune:"count" want:"1 to 4096"`
		Name  string        `yaml:"name"`
	}
	good := settings{Span: time.Minute, Grace: time.Hour, Least: 1000 * time.Hour, Wait: 1, Count: 4096}
	if err := Bounds("", good); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*settings){
		"a.span: want 1m to 744h, got 1s":                                          func(s *settings) { s.Span = time.Second },
		"a.span: want 1m to 744h, got 744h0m1s":                                    func(s *settings) { s.Span = 744*time.Hour + time.Second },
		"a.grace: want 0s to 1h, got 1h30m":                                        func(s *settings) { s.Grace = 90 * time.Minute },
		"a.least: want at least 1m, got 1.5s":                                      func(s *settings) { s.Least = 1500 * time.Millisecond },
		"a.wait: 0s is not greater than 0":                                         func(s *settings) { s.Wait = 0 },
		"a.hold: -10m is negative":                                                 func(s *settings) { s.Hold = -10 * time.Minute },
		"a.size: want 1KiB to 1MiB, or 0, got 5":                                   func(s *settings) { s.Size = 5 },
		"a.size: want 1KiB to 1MiB, or 0, got 2MiB":                                func(s *settings) { s.Size = 2 * MiB },
		"a.count: want 1 to 4096, got 0":                                           func(s *settings) { s.Count = 0 },
		"a.size: want 1KiB to 1MiB, or 0, got -1\na.count: want 1 to 4096, got -1": func(s *settings) { s.Count, s.Size = -1, -1 },
	} {
		bad := good
		change(&bad)
		if err := Bounds("a.", bad); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a tag that cannot be read is no panic")
		}
	}()
	_ = Bounds("", struct {
		Size Bytes `yaml:"size" want:"few to many"`
	}{})
}

func TestCheck(t *testing.T) {
	if err := Check(false, "a", "whole hours", 2*time.Minute); err == nil || err.Error() != "a: want whole hours, got 2m" {
		t.Error(err)
	}
}
