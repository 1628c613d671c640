package hostile

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// graphiteMemory is what one kind of question to Graphite's API may take, asked by
// several at once: query.max_memory, which is 512 MiB, for each of the two that a machine
// with two processors answers at a time, and as much garbage as Go lets gather beside it.
const graphiteMemory = 2 * 512 * mib * 2

// paths stores a tree of many paths, and one path with some days of points.
func (w *ward) paths() {
	w.t.Helper()
	c, err := connect(w.t.Context(), w.Carbon(w.t, "lines"))
	if err != nil {
		w.t.Fatal(err)
	}
	now := time.Now().Unix()
	var b bytes.Buffer
	for i := range 40_000 {
		fmt.Fprintf(&b, "wide.a%d.b%d.c%d 1 %d\n", i%10, i/10%200, i/2000, now)
	}
	for i := range int64(20_000) {
		fmt.Fprintf(&b, "long.path %d %d\n", i, now-10*i)
	}
	fmt.Fprintf(&b, "last.path 1 %d\n", now)
	if err := c.say(b.String()); err != nil {
		w.t.Fatal(err)
	}
	c.Close()
	for limit := time.Now().Add(30 * time.Second); ; pause(w.t.Context(), lookEvery) {
		if names, err := w.MetricNames(w.t.Context(), "last.path"); err == nil && len(names) == 1 {
			break
		}
		if time.Now().After(limit) {
			w.t.Fatal("the paths are not there after 30 s")
		}
	}
	w.base = w.memory("VmRSS")
}

// Costly targets, globs and charts end at a limit with a name, and with the client.
func TestGraphiteBombs(t *testing.T) {
	w := guard(t)
	w.paths()
	nested := func(n int, function, inner string) string {
		return strings.Repeat(function+"(", n) + inner + strings.Repeat(")", n)
	}
	render := func(targets ...string) string {
		return "/render?" + url.Values{"target": targets, "format": {"json"}, "from": {"-2d"}}.Encode()
	}
	many := make([]string, 2000)
	for i := range many {
		many[i] = "wide.*.*.*"
	}
	for name, path := range map[string]string{
		"1,000 functions":             render(nested(1000, "absolute", "wide.*.*.*")),
		"100,000 brackets":            render(nested(100_000, "absolute", "a")),
		"2,000 targets":               render(many...),
		"everything":                  render("*.*.*.*"),
		"everything by **":            render("**", "**.**.**.**"),
		"everything from 1970":        "/render?target=**&from=0&format=json",
		"a billion points":            render("randomWalk('x',1)") + "&from=-40y",
		"a point each second":         render("timeFunction('x',1)") + "&from=19700101&until=21000101",
		"wide constant lines":         render("constantLine(1e308)") + "&from=-9223372036854775808&until=9223372036854775807",
		"braces in braces":            render("wide." + strings.Repeat("{a,b,{c,d}}", 300)),
		"alternatives of braces":      render("{" + strings.Repeat("a,", 200_000) + "b}"),
		"stars":                       render(strings.Repeat("*", 100_000)),
		"stars and letters":           render("wide." + strings.Repeat("*a", 2000) + ".*.*"),
		"dots":                        render(strings.Repeat("*.", 50_000) + "x"),
		"a costly expression":         render("aliasSub(wide.*.*.*,'((a*)*)*b','"+strings.Repeat(`\1`, 10_000)+"')", "grep(wide.*.*.*,'(?:a?){1000}a{1000}')"),
		"an expression that grows":    render("aliasSub(wide.a0.b0.c0,'(.*)','" + strings.Repeat(`\1`, 100_000) + "')"),
		"a window of for ever":        render("movingAverage(long.path,2147483647)", "movingMedian(long.path,'1000000d')"),
		"a window each":               render("movingMedian(wide.*.*.*,'1d')"),
		"hours of summaries":          render("summarize(long.path,'1s','sum')", "hitcount(long.path,'1s')", "smartSummarize(long.path,'1s')"),
		"holt winters of all":         render("holtWintersConfidenceBands(wide.*.*.*)"),
		"shifts":                      render("timeStack(wide.*.*.*,'1d',0,1000000)"),
		"products of lists":           render("useSeriesAbove(wide.*.*.*,0,'a','a')", "applyByNode(wide.*.*.*,3,'wide.*.*.%')"),
		"groups":                      render("groupByNodes(wide.*.*.*,'sum',"+strings.TrimSuffix(strings.Repeat("0,", 10_000), ",")+")", "sumSeriesWithWildcards(wide.*.*.*,0,1,2,3)"),
		"names in names":              render(nested(60, "group", "wide.*.*.*,wide.*.*.*")),
		"a template in itself":        "/render?target=template(x%24a,a='%24a%24a%24a')&template[a]=%24a%24a&from=-1h&format=json",
		"series of tags":              render("seriesByTag('name=~.*','name!=~(a*)*b')"),
		"find everything":             "/metrics/find?query=**&format=json",
		"find stars":                  "/metrics/find?query=" + strings.Repeat("*", 20_000),
		"index":                       "/metrics/index.json",
		"expand":                      "/metrics/expand?query=*.*.*.*&leavesOnly=1&query=" + strings.Repeat("&query=*.*.*.*", 1000),
		"tags by expression":          "/tags/findSeries?expr=" + url.QueryEscape("name=~((a{100}){100}){100}"),
		"values by expression":        "/tags/autoComplete/values?tag=name&expr=" + url.QueryEscape("name=~(a*)*b") + "&limit=999999999",
		"events of for ever":          "/events/get_data?from=-9223372036854775808&until=9223372036854775807",
		"times":                       "/render?target=long.path&format=json&from=" + strings.Repeat("-1d", 10_000),
		"many points":                 "/render?target=long.path&format=json&from=-2d&maxDataPoints=9223372036854775807",
		"a chart of many pixels":      "/render?target=long.path&from=-2d&width=100000&height=100000",
		"a chart of the largest size": "/render?target=long.path&from=-2d&width=4000&height=4000&lineWidth=1000000",
		"a chart of everything":       "/render?target=wide.*.*.*&from=-2d&width=1000&height=1000&fontSize=1e308&areaMode=stacked",
		"a chart in SVG":              "/render?target=wide.*.*.*&from=-2d&format=svg&title=" + strings.Repeat("%3Csvg%3E", 5000),
		"a callback":                  "/render?target=long.path&from=-2d&format=json&jsonp=" + strings.Repeat("a", 20_000),
	} {
		w.part(name, graphiteMemory, func(ctx context.Context) {
			crowd(4, func(int) {
				ctx, cancel := context.WithTimeout(ctx, *attackFor)
				defer cancel()
				at, form, method := path, "", "GET"
				if len(path) > 30_000 { // longer than the line of a request may be
					at, form, _ = strings.Cut(path, "?")
					method = "POST"
				}
				request, err := http.NewRequestWithContext(ctx, method, "http://"+w.HTTP+at, strings.NewReader(form))
				if err != nil {
					w.t.Error(err)
					return
				}
				request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
				status, answer, err := w.Send(request)
				if err == nil && status >= 500 && status != http.StatusServiceUnavailable {
					w.t.Errorf("status %d: %.300s", status, answer)
				}
			})
		})
	}
}

// pickleMemory is what pickles may take: eight that are decoded at once, at 30 times
// their length, 64 that have arrived, and as much again as garbage.
const pickleMemory = 600 * mib

// frame is a pickle as carbon's senders frame it.
func frame(pickle string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(pickle)))) + pickle
}

// Pickles that lie about their size, grow as they are read, call functions or refer to
// themselves cost their connection, and nothing else happens.
func TestPickleBombs(t *testing.T) {
	w := guard(t)
	laughs := "(lp0\nS'" + strings.Repeat("a", 1000) + "'\np1\na"
	for i := range 20 {
		laughs += fmt.Sprintf("(%s tp%d\na", strings.Repeat(fmt.Sprintf("g%d\n", i+1), 10), i+2)
	}
	for name, text := range map[string]string{
		"a length of 4 GB":      "\xff\xff\xff\xff(l",
		"a length of 2 GB":      "\x7f\xff\xff\xff" + strings.Repeat("(", 60_000),
		"no end":                "\x00\x0f\x00\x00",
		"empty frames":          strings.Repeat("\x00\x00\x00\x00", 15_000),
		"lists in lists":        frame(strings.Repeat("(l", 500_000) + "."),
		"marks":                 frame(strings.Repeat("(", 1_000_000) + "."),
		"empty lists":           frame("\x80\x02" + strings.Repeat("]", 1_000_000) + "."),
		"a function":            frame("cos\nsystem\n(S'touch /tmp/varve-was-here'\ntR."),
		"an object":             frame("\x80\x02c__builtin__\neval\nU\x01x\x85R."),
		"a build":               frame("\x80\x02}b."),
		"laughs":                frame(laughs + "."),
		"itself":                frame("\x80\x02]q\x00h\x00a."),
		"a long text":           frame("\x80\x02X\xff\xff\xff\x7fabc."),
		"a long number":         frame("\x80\x02\x8b\xff\xff\xff\x7f1."),
		"a number of text":      frame("(lp0\n(S'a'\n(L" + strings.Repeat("9", 900_000) + "L\nF1\nttp1\na."),
		"memo far away":         frame("\x80\x02]r\xff\xff\xff\x7f."),
		"a frame in a frame":    frame("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f]."),
		"many points":           frame("(lp0\n" + strings.Repeat("(S'pickle.many'\n(I1700000000\nF1\nttp1\na", 20_000) + "."),
		"long names":            frame("(lp0\n" + strings.Repeat("(S'"+strings.Repeat("n", 900)+"'\n(I1700000000\nF1\nttp1\na", 900) + "."),
		"strange values":        frame("(lp0\n(S'a'\n(Fnan\nFinf\nttp1\na(S'b'\n(I-9223372036854775808\nF-inf\nttp1\na(S'c'\n(F1e308\nF1e400\nttp1\na."),
		"lines":                 strings.Repeat("a.b 1 1700000000\n", 4000),
		"a request for a page":  "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"the beginning of TLS":  "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
		"a frame byte for byte": "",
	} {
		w.part(name, pickleMemory, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			crowd(4, func(int) {
				for ctx.Err() == nil { // a new connection for one that was cut
					c, err := connect(ctx, w.Carbon(w.t, "pickles"))
					if err != nil {
						return
					}
					for ctx.Err() == nil && c.trickle(ctx, text) == nil {
						pause(ctx, askEvery)
					}
					c.Close()
				}
			})
		})
	}
}

// trickle writes text, and a whole frame byte for byte if there is none.
func (c client) trickle(ctx context.Context, text string) error {
	if text != "" {
		return c.say(text)
	}
	for _, b := range []byte(frame("(lp0\n(S'slow.pickle'\n(I1700000000\nF1\nttp1\na.")) {
		if err := c.say(string(b)); err != nil {
			return err
		}
		pause(ctx, 10*time.Millisecond)
	}
	return nil
}

// The ports of carbon bear what telnet's bears, and datagrams too.
func TestCarbonBombs(t *testing.T) {
	udp := unusedUDP(t)
	w := guard(t, "--carbon-max-connections=64", "--server-carbon-udp-addr="+udp)
	for name, line := range map[string]string{
		"faults":             "a.metric.with.a.fault now 1\n",
		"long names":         strings.Repeat("n", 60_000) + " 1 1700000000\n",
		"many nodes":         strings.Repeat("n.", 30_000) + " 1 1700000000\n",
		"long values":        "m " + strings.Repeat("9", 60_000) + " 1700000000\n",
		"tags":               "m" + strings.Repeat(";t=v", 10_000) + " 1 1700000000\n",
		"different tags":     "m;a=1;b=2;~=3;name=x;;=;a==b 1 1700000000\n",
		"no end":             strings.Repeat("x", 60_000),
		"extreme times":      "m 1 9223372036854775807\nm 1 -9223372036854775808\nm 1 1e308\nm 1 nan\nm inf 1\nm nan 1\n",
		"strange text":       "\x1b[2J\x00\u202e 1 1700000000\n",
		"pickles":            frame("(lp0\n."),
		"a page":             "GET / HTTP/1.1\r\nHost: x\r\n\r\n",
		"empty lines":        strings.Repeat("\n", 1000),
		"dots and slashes":   "../../etc/passwd 1 1700000000\n/etc/passwd 1 1700000000\n... 1 1700000000\n",
		"globs":              "a.*.{b,c}[d] 1 1700000000\n",
		"half of a line":     "a.b.c 1",
		"a line of old news": "a.b 1 0\na.b 1 1\na.b 1 -1\n",
	} {
		text := strings.Repeat(line, max(1, 60_000/len(line)))
		w.part(name, 200*mib, func(ctx context.Context) {
			ctx, cancel := context.WithTimeout(ctx, *attackFor)
			defer cancel()
			crowd(8, func(i int) {
				if i%4 == 3 {
					datagrams(ctx, udp, line)
					return
				}
				c, err := connect(ctx, w.Carbon(w.t, "lines"))
				if err != nil {
					return
				}
				defer c.Close()
				for ctx.Err() == nil && c.say(text) == nil {
					pause(ctx, askEvery)
				}
			})
		})
		if *overCassandra {
			w.settled() // the next part is not to blame for the points of this one
		}
	}
	mayTake := int64(100 * mib)
	if *overCassandra {
		mayTake = 200 * mib // what the last of the bombs took may still be in the memory of the process
	}
	w.part("more connections than there may be", mayTake, func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for range 80 {
			c, err := connect(ctx, w.Carbon(w.t, "lines"))
			if err != nil {
				w.t.Error(err)
				return
			}
			defer c.Close()
		}
		c, err := connect(ctx, w.Carbon(w.t, "lines"))
		if err != nil {
			w.t.Error(err)
			return
		}
		defer c.Close()
		c.say("carbon.visitor 1.5 1700000000\n")
		for limit := time.Now().Add(10 * time.Second); ; pause(ctx, lookEvery) {
			if names, err := w.MetricNames(ctx, "carbon.visitor"); err == nil && len(names) == 1 {
				return
			}
			if time.Now().After(limit) {
				w.t.Error("80 idle connections keep a sender out of carbon's port")
				return
			}
		}
	})
}

// unusedUDP is an address for datagrams that nobody listens on.
func unusedUDP(t *testing.T) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

// datagrams sends text in datagrams, as large as they may be, until ctx ends.
func datagrams(ctx context.Context, address, text string) {
	c, err := net.Dial("udp", address)
	if err != nil {
		return
	}
	defer c.Close()
	for ctx.Err() == nil {
		for range 100 {
			c.Write([]byte(text[:min(len(text), 60_000)]))
		}
		pause(ctx, 10*time.Millisecond)
	}
}
