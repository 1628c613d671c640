package config

import (
	"math"
	"reflect"
	"testing"
)

// Each setting with a tag of units.Bounds is refused beyond it.
func TestBoundsAreChecked(t *testing.T) {
	c := Default()
	var n int
	checkBounds(t, reflect.ValueOf(&c).Elem(), "", &n)
	if n < 100 {
		t.Errorf("%d settings have bounds", n)
	}
}

func checkBounds(t *testing.T, section reflect.Value, path string, n *int) {
	for i := range section.NumField() {
		f, of := section.Field(i), section.Type().Field(i)
		switch {
		case f.Kind() == reflect.Struct && of.IsExported():
			checkBounds(t, f, path+of.Name+".", n)
		case of.Tag.Get("want") != "":
			*n++
			before := f.Int()
			f.SetInt(math.MinInt32)
			v := section.Addr().Interface().(interface{ Validate() error })
			if v.Validate() == nil {
				t.Errorf("%s%s may be %v", path, of.Name, f.Interface())
			}
			f.SetInt(before)
		}
	}
}
