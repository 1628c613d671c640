package numeric

import "testing"

func TestRound(t *testing.T) {
	for _, c := range []struct {
		v        float64
		decimals int64
		want     float64
	}{
		{2.5, 0, 2}, {3.5, 0, 4}, {2.675, 2, 2.67}, {1234.5, -2, 1200}, {1250, -2, 1200}, {1350, -2, 1400}, {51, -2, 100}, {50, -2, 0}, {-51, -2, -100}, {4, -2, 0}, {999, -1, 1000}, {1e300, -400, 0}, {1.5, 400, 1.5},
	} {
		if got := Round(c.v, c.decimals); got != c.want {
			t.Errorf("Round(%g, %d) = %g; want %g", c.v, c.decimals, got, c.want)
		}
	}
}
