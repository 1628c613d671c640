package units

import (
	"log/slog"
	"reflect"
	"testing"
	"time"
)

type outer struct {
	Name    string        `yaml:"name" default:"x"`
	On      bool          `yaml:"on" default:"true"`
	Wait    time.Duration `yaml:"wait" default:"30d"`
	Size    Bytes         `tune:"size" default:"64KiB"`
	Share   float64       `yaml:"share" default:"0.5"`
	Count   uint16        `yaml:"count" default:"7"`
	Level   slog.Level    `yaml:"level" default:"warn"`
	List    []string      `yaml:"list" default:"a, b"`
	None    int           `yaml:"none"`
	Section inner         `yaml:"section"`
	Embedded
}

type inner struct {
	Least int `tune:"least" default:"1"`
	Most  int `tune:"most"`
}

// SetDefaults computes what no tag says.
func (i *inner) SetDefaults() { i.Most = 10 * i.Least }

// Embedded has settings of the struct around it.
type Embedded struct {
	Port int `yaml:"port" default:"80"`
}

func TestDefaults(t *testing.T) {
	want := outer{Name: "x", On: true, Wait: 30 * 24 * time.Hour, Size: 64 * KiB, Share: 0.5, Count: 7, Level: slog.LevelWarn, List: []string{"a", "b"},
		Section: inner{1, 10}, Embedded: Embedded{80}}
	if got := Defaults[outer](); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	defer func() {
		if recover() == nil {
			t.Error("a default that cannot be read is no panic")
		}
	}()
	Defaults[struct {
		Wait time.Duration `yaml:"wait" default:"soon"`
	}]()
}
