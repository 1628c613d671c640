package wsp

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"varve/internal/clip"
	"varve/internal/graphite/whisper"
	"varve/internal/ingest/kairosjson"
	"varve/internal/model"
	"varve/internal/retention"
	"varve/internal/transfer"
)

// Reasons why series or samples are not exported.
const (
	NoRule   Reason = "no rule matches"
	Forever  Reason = "its policy keeps every sample"
	NoMethod Reason = "Whisper does not have its method"
	NoFile   Reason = "no file can hold it"
	NoNumber Reason = "samples that are not finite numbers"
	IsThere  Reason = "the file already exists"
)

// An Export writes series as files below a directory.
type Export struct {
	Dir    string
	Book   *retention.Book
	Now    int64 // seconds; archives end at this time
	Hashed bool  // files of series with tags are named by a hash
	Keep   bool  // existing files are kept; otherwise they are replaced

	// Done is called for each series, before its file gets its name. Its error ends the export.
	Done func(*Exported) error

	spool   *spool
	buckets tape
}

// Exported is the result of exporting a series.
type Exported struct {
	Series string
	File   string // below Dir; "" if none was written
	Steps  int64  // steps of the finest archive with a sample, plus buckets
	Faults []Fault
}

// Since returns the time in seconds before which no file has points.
func (e *Export) Since() int64 {
	longest := int64(0)
	for _, r := range e.Book.Rules {
		if len(r.Stages) == 0 {
			continue
		}
		last := r.Stages[len(r.Stages)-1]
		longest = max(longest, last.Keep+last.Step)
	}
	return e.Now - longest
}

// Begin creates the directory, and temporary files in it, which End removes.
func (e *Export) Begin() (err error) {
	if err := os.MkdirAll(e.Dir, 0o777); err != nil {
		return err
	}
	if e.spool, err = newSpool(e.Dir); err != nil {
		return err
	}
	if e.buckets, err = newTape(e.Dir); err != nil {
		return errors.Join(err, e.spool.close())
	}
	return nil
}

// End removes the temporary files.
func (e *Export) End() error { return errors.Join(e.spool.close(), e.buckets.close()) }

// Has reports whether the file of a series without tags exists and is kept.
func (e *Export) Has(metric string) bool {
	file, err := whisper.FileOf(metric, false)
	if err != nil || !e.Keep {
		return false
	}
	_, err = os.Lstat(filepath.Join(e.Dir, filepath.FromSlash(file)))
	return err == nil
}

// Metric writes the files of a metric. It calls read, which writes the lines of an export
// of this metric: the lines of a series follow each other, in ascending time for each
// type.
func (e *Export) Metric(ctx context.Context, read func(w io.Writer) error) error {
	in := &lineSplitter{take: (&reader{ctx: ctx, export: e}).line}
	if err := read(in); err != nil {
		return err
	}
	return in.end()
}

// maxLine limits the lines of an export. transfer.LineWriter writes shorter ones.
const maxLine = 64 << 20

// A lineSplitter calls take for each complete line, and with nil after the last one.
type lineSplitter struct {
	part []byte
	take func(line []byte) error
}

func (s *lineSplitter) Write(p []byte) (int, error) {
	n := len(p)
	for {
		line, rest, whole := bytes.Cut(p, []byte{'\n'})
		if len(s.part)+len(line) > maxLine {
			return 0, fmt.Errorf("a line of the export is longer than %d bytes", maxLine)
		}
		if !whole {
			s.part = append(s.part, line...)
			return n, nil
		}
		if len(s.part) > 0 {
			s.part = append(s.part, line...)
			line = s.part
		}
		if err := s.take(line); err != nil {
			return 0, err
		}
		s.part, p = s.part[:0], rest
	}
}

func (s *lineSplitter) end() error {
	if len(s.part) > 0 {
		return errors.New("the export ends within a line")
	}
	return s.take(nil)
}

// A reader gathers the samples of a series.
type reader struct {
	ctx     context.Context
	export  *Export
	series  string // its path, "" before the first series
	foreign bool   // see nameOf
	bucket  int64  // beginning of the previous bucket in ms; 0: the series has none yet
	step    int64  // of the finest archive, in seconds
	policy  retention.Policy
	skipped bool // the series is not written
	out     Exported
	last    int64 // time of the previous sample in ms; 0: the series has none yet
	others  int64 // samples that are not numbers
}

type exportedLine struct {
	Name       string            `json:"name"`
	Tags       map[string]string `json:"tags"`
	Type       string            `json:"type"` // of all points, if they are in base64
	Datapoints []exportedPoint   `json:"datapoints"`
}

// An exportedPoint is [time, value, type].
type exportedPoint struct {
	ms     int64
	value  float64
	number bool   // value is set
	packed []byte // the bytes of [time, base64]
}

func (p *exportedPoint) UnmarshalJSON(text []byte) error {
	if len(text) < 2 || text[0] != '[' {
		return fmt.Errorf("%s is not a point", clip.Text(text, 100))
	}
	msText, rest, _ := bytes.Cut(text[1:len(text)-1], []byte{','})
	if err := json.Unmarshal(msText, &p.ms); err != nil {
		return err
	}
	at := bytes.LastIndexByte(rest, ',')
	if at < 0 {
		return json.Unmarshal(rest, &p.packed)
	}
	if kind := string(bytes.TrimSpace(rest[at+1:])); kind == `"long"` || kind == `"double"` {
		p.number = true
		return json.Unmarshal(rest[:at], &p.value)
	}
	return nil
}

func (r *reader) line(text []byte) error {
	if err := context.Cause(r.ctx); err != nil {
		return err
	}
	if text == nil {
		return r.finish()
	}
	var line exportedLine
	if err := json.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("parse a line of the export: %w: %s", err, clip.Text(text, 100))
	}
	name, foreign, err := nameOf(line)
	if err != nil {
		return err
	}
	if name != r.series || foreign != r.foreign {
		if err := r.finish(); err != nil {
			return err
		}
		if err := r.begin(name, foreign); err != nil {
			return err
		}
	}
	if r.skipped {
		return nil
	}
	if text, ok := strings.CutPrefix(line.Type, kairosjson.RawType+transfer.BucketType); ok {
		return r.buckets(text, line.Datapoints)
	}
	return r.points(line.Datapoints)
}

// nameOf returns the path of the series of a line. foreign reports whether the path belongs to
// another series: the metric m;a=b without tags has the path of m with the tag a=b.
func nameOf(line exportedLine) (path string, foreign bool, err error) {
	var tags []model.Tag
	for name, value := range line.Tags {
		tags = append(tags, model.Tag{Name: name, Value: value})
	}
	set, err := model.NewTags(tags...)
	path = retention.PathOf(line.Name, set)
	of := retention.ParsePath(path)
	return path, of.Metric != line.Name || of.Tags != set, err
}

// begin starts a series.
func (r *reader) begin(name string, foreign bool) error {
	*r = reader{ctx: r.ctx, export: r.export, series: name, foreign: foreign, out: Exported{Series: name}, policy: r.export.Book.Of(retention.ParsePath(name))}
	if r.policy.Rule == nil {
		r.withoutArchives()
		return nil
	}
	r.step = r.policy.Rule.Stages[0].Step
	if foreign {
		r.skip(NoFile, "its path is that of another series")
		return nil
	}
	file, err := whisper.FileOf(name, r.export.Hashed)
	if err != nil && strings.Contains(name, ";") {
		file, err = whisper.FileOf(name, true) // the name may be too long for a file
	}
	if err != nil {
		r.skip(NoFile, err.Error())
		return nil
	}
	if _, err := os.Lstat(r.path(file)); err == nil && r.export.Keep {
		r.skip(IsThere, file)
		return nil
	}
	r.out.File = file
	return errors.Join(r.export.spool.reset(), r.export.buckets.reset())
}

// withoutArchives skips a series whose policy has no stages.
func (r *reader) withoutArchives() {
	if rule := r.export.Book.Report(r.series).Rule; rule != "" {
		r.skip(Forever, fmt.Sprintf("[%s] defines no archives; use --storage-schemas with a file that does", rule))
		return
	}
	r.skip(NoRule, "add one, such as pattern = .* at the end of storage-schemas.conf")
}

func (r *reader) path(file string) string {
	return filepath.Join(r.export.Dir, filepath.FromSlash(file))
}

func (r *reader) skip(reason Reason, text string) {
	r.skipped, r.out.File = true, ""
	r.out.Faults = append(r.out.Faults, Fault{Reason: reason, Text: text})
}

// points adds the samples of a line to the spool.
func (r *reader) points(points []exportedPoint) error {
	s := r.export.spool
	for _, p := range points {
		if !p.number {
			r.others++
			continue
		}
		if p.ms/1000 > r.export.Now || p.ms < 1000 {
			continue
		}
		if p.ms < r.last { // samples of another type begin
			if err := s.endRun(); err != nil {
				return err
			}
		}
		r.last = p.ms
		if err := s.add(sample{p.ms, p.value}, r.step*1000); err != nil {
			return err
		}
	}
	return nil
}

// buckets writes the buckets of a line to their tape. stepText is their width in ms.
func (r *reader) buckets(stepText string, points []exportedPoint) error {
	stepMS, err := strconv.ParseInt(stepText, 10, 64)
	if err != nil || stepMS <= 0 {
		return fmt.Errorf("a line of the export has buckets of %s ms", clip.Text([]byte(stepText), 20))
	}
	tape := &r.export.buckets
	percent, isPercentile := r.policy.Aggregation.Method.Percentile()
	for _, p := range points {
		b := bucket{startMS: p.ms, stepMS: stepMS}
		if b.Aggregate, err = model.ParseAggregate(p.packed); err != nil {
			return fmt.Errorf("parse a bucket of the export: %w", err)
		}
		if p.ms/1000 > r.export.Now || p.ms < 1000 || b.Count == 0 {
			continue
		}
		if isPercentile {
			b.percentile = b.Percentile(percent)
		}
		if p.ms < r.bucket { // buckets of another type begin
			if err := tape.endRun(); err != nil {
				return err
			}
		}
		r.bucket = p.ms
		if err := tape.write(b.append(nil)); err != nil {
			return err
		}
	}
	return nil
}

// finish writes the file of the series.
func (r *reader) finish() error {
	if r.series == "" {
		return nil
	}
	if r.others > 0 {
		r.out.Faults = append(r.out.Faults, Fault{NoNumber, fmt.Sprintf("%d samples are texts, NaN or infinite, or of another type", r.others), r.others})
	}
	if !r.skipped {
		if err := r.write(); err != nil {
			return fmt.Errorf("write the file of %s: %w", clip.Text(r.series, 200), err)
		}
	}
	err := r.export.Done(&r.out)
	if r.out.File == "" {
		return err
	}
	path := r.path(r.out.File)
	if err != nil { // with Keep, the file would be kept and its faults not reported
		return errors.Join(err, remove(path+unfinished))
	}
	return os.Rename(path+unfinished, path)
}

// unfinished is the suffix of a file while it is written. The file gets its name once its faults
// are reported, so that an existing file is always complete.
const unfinished = ".new"

// write writes the file under its temporary name.
func (r *reader) write() error {
	how, renamed := r.inHeader()
	h, err := whisper.NewHeader(r.policy.Rule.Stages, how)
	if err != nil {
		r.skip(NoFile, err.Error())
		return nil
	}
	path := r.path(r.out.File)
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return err
	}
	fresh := path + unfinished
	if err := r.fill(fresh, h); err != nil {
		return errors.Join(err, remove(fresh))
	}
	if r.out.Steps == 0 {
		r.out.File = ""
		return remove(fresh)
	}
	if renamed {
		text := fmt.Sprintf("the points are %s values; the header says %s, which carbon uses for later points", r.policy.Aggregation.Method, how.Method)
		r.out.Faults = append(r.out.Faults, Fault{Reason: NoMethod, Text: text})
	}
	return nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (r *reader) fill(path string, h *whisper.Header) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err = f.Truncate(h.Size()); err == nil {
		err = r.fillFile(f, h)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func (r *reader) fillFile(f io.WriterAt, h *whisper.Header) error {
	w, err := whisper.NewWriter(f, h, r.policy.Aggregation, r.export.Now)
	if err != nil {
		return err
	}
	p := placer{reader: r, w: w}
	if p.buckets, err = openRuns(&r.export.buckets, bucketBytes, parseBucket); err != nil {
		return err
	}
	if err := r.export.spool.merge(r.step*1000, p.sample); err != nil {
		return err
	}
	if err := p.bucketsBefore(math.MaxInt64); err != nil {
		return err
	}
	return w.Close()
}

// inHeader returns the aggregation for the header of the file. A method that Whisper lacks
// is replaced by a similar one there, but the archives are still computed by the original.
func (r *reader) inHeader() (how *retention.Aggregation, renamed bool) {
	a := *r.policy.Aggregation
	if _, ok := a.Method.Percentile(); ok {
		a.Method = retention.Average
	} else if a.Method == retention.Count {
		a.Method = retention.Sum
	}
	return &a, a.Method != r.policy.Aggregation.Method
}

// A placer writes samples and buckets to the archives of a file, in order of time. A bucket
// becomes a point of the archive with its step. Late samples within it, and narrower buckets
// that are not downsampled further yet, are added to it.
type placer struct {
	*reader
	w       *whisper.Writer
	buckets []*run[bucket] // each ordered by the beginnings of buckets
	open    bucket         // collects late samples and narrower buckets; stepMS 0: none
	archive int            // the archive of open
}

func (p *placer) sample(s sample) error {
	if err := p.bucketsBefore(s.ms - s.ms%(p.step*1000) + 1); err != nil {
		return err
	}
	if p.open.stepMS != 0 {
		p.open.Add(s.ms, s.value)
	}
	p.out.Steps++
	return p.w.Add(whisper.Point{Time: s.ms / 1000, Value: s.value})
}

// bucketsBefore takes all buckets that begin before a time, one after the other, and closes
// the open one if it ends before that time.
func (p *placer) bucketsBefore(ms int64) error {
	for {
		b, err := nextBucket(p.buckets, ms)
		if err != nil || b == nil {
			return errors.Join(err, p.closeBefore(ms))
		}
		if err := p.closeBefore(b.startMS + 1); err != nil {
			return err
		}
		p.out.Steps++
		if p.open.stepMS != 0 {
			p.open.merge(*b)
			continue
		}
		p.archive = p.archiveOf(b.stepMS)
		stepMS := p.policy.Rule.Stages[p.archive].Step * 1000
		b.startMS -= b.startMS % stepMS
		b.stepMS = max(b.stepMS, stepMS)
		p.open = *b
	}
}

// archiveOf returns the finest archive whose step is at least that of a bucket, else the
// coarsest archive.
func (p *placer) archiveOf(stepMS int64) int {
	stages := p.policy.Rule.Stages
	i := 0
	for i+1 < len(stages) && stages[i].Step*1000 < stepMS {
		i++
	}
	return i
}

// closeBefore writes the open bucket to its archive if it ends before a time.
func (p *placer) closeBefore(ms int64) error {
	if p.open.stepMS == 0 || p.open.end() >= ms {
		return nil
	}
	b := p.open
	p.open = bucket{}
	return p.w.SetPoint(p.archive, whisper.Point{Time: b.startMS / 1000, Value: p.value(&b)})
}

// value returns the value of a bucket, NaN if it has too few samples for the xFilesFactor.
func (p *placer) value(b *bucket) float64 {
	expected := p.policy.Expected(b.stepMS)
	atBegin := b.LastMS-b.startMS < p.policy.Rule.Stages[0].Step*1000
	if retention.PartOf(b.Count, atBegin, expected) < p.policy.Aggregation.XFilesFactor {
		return math.NaN()
	}
	if _, ok := p.policy.Aggregation.Method.Percentile(); ok {
		return b.percentile
	}
	return p.policy.Aggregation.Method.Of(b.Aggregate, expected)
}

// A sample is a value at a time in ms.
type sample struct {
	ms    int64
	value float64
}

const sampleBytes = 16

func (s sample) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(s.ms))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(s.value))
}

func parseSample(b []byte) (sample, error) {
	return sample{int64(binary.LittleEndian.Uint64(b)), math.Float64frombits(binary.LittleEndian.Uint64(b[8:]))}, nil
}
