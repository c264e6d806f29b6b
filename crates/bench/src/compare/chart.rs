//! Plots of a comparison: for each workload and metric one bar per system and case, with a line from
//! the least to the greatest of its runs.

use super::pairing::{Better, Metric};
use super::record::{CaseRecord, Comparison};
use super::workloads::Workload;
use crate::failure::{Doing, Outcome};
use crate::spread::Spread;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: u32 = 900;
const HEIGHT: u32 = 420;
const LEGEND_HEIGHT: u32 = 60;
/// Systems in one line of the legend.
const LEGEND_COLUMNS: usize = 4;

/// Of each contender, this server's first; told apart without colour vision too.
const COLORS: [RGBColor; 10] = [
    RGBColor(0, 92, 171),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(120, 120, 120),
    RGBColor(213, 94, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 20, 60),
    RGBColor(240, 228, 66),
    RGBColor(150, 75, 0),
];

/// One line of the picture of leads.
#[derive(Debug)]
pub(crate) struct Bar {
    pub(crate) label: String,
    /// How many times better this server is than the best other one.
    pub(crate) lead: f64,
}

/// Height of a line of that picture, and of what is above and below the lines.
const BAR_HEIGHT: u32 = 22;
const FRAME_HEIGHT: u32 = 70;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// What one plot shows.
struct Plot<'a> {
    title: String,
    unit: &'static str,
    contenders: Vec<&'a str>,
    /// For each case its name, and what each contender's runs found.
    groups: Vec<(&'a str, Vec<Option<Spread>>)>,
}

/// The name of the file with a plot.
pub(crate) fn file_name(workload: Workload, metric: &Metric) -> String {
    format!("{}-{}.svg", workload.key(), metric.label.to_lowercase().replace(' ', "-"))
}

/// Every plot with its file's name.
pub(crate) fn render_all(comparison: &Comparison) -> Outcome<Vec<(String, String)>> {
    let mut files = Vec::new();
    for workload in comparison.workloads() {
        for metric in workload.metrics() {
            let plot = Plot::of(comparison, workload, metric);
            files.push((file_name(workload, metric), plot.render()?));
        }
    }
    Ok(files)
}

/// How many times better this server is, a line for each bar: to the right of 1 it leads.
pub(crate) fn render_leads(bars: &[Bar]) -> Outcome<String> {
    let height = FRAME_HEIGHT + BAR_HEIGHT * bars.len() as u32;
    svg("the picture of leads", height, |root| draw_leads(root, bars))
}

/// A drawing of that height on white.
fn svg(
    what: &str,
    height: u32,
    draw: impl for<'a> FnOnce(&Area<'a>) -> Drawn<'a>,
) -> Outcome<String> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH, height)).into_drawing_area();
        let drawn = root.fill(&WHITE).and_then(|()| draw(&root)).and_then(|()| root.present());
        drawn.map_err(|error| format!("{error:?}")).doing(|| what.to_owned())?;
    }
    Ok(svg)
}

fn draw_leads<'a>(area: &Area<'a>, bars: &[Bar]) -> Drawn<'a> {
    let leads = || bars.iter().map(|bar| bar.lead);
    let least = leads().fold(0.5, f64::min) * 0.8;
    let most = leads().fold(2.0, f64::max) * 1.6;
    let mut chart = ChartBuilder::on(area)
        .caption("Times better than the best other system (log scale)", ("sans-serif", 18))
        .margin(8)
        .set_label_area_size(LabelAreaPosition::Left, 400)
        .set_label_area_size(LabelAreaPosition::Bottom, 26)
        .build_cartesian_2d((least..most).log_scale(), 0.0..bars.len().max(1) as f64)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .x_labels(6)
        .max_light_lines(1)
        .x_label_formatter(&|value| crate::report::number(*value))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (at, bar) in bars.iter().enumerate() {
        let bottom = (bars.len() - 1 - at) as f64;
        let fill = color(if bar.lead < 1.0 { 5 } else { 0 }).filled();
        let (from, to) = (bar.lead.min(1.0), bar.lead.max(1.0));
        chart.draw_series([Rectangle::new([(from, bottom + 0.2), (to, bottom + 0.8)], fill)])?;
        let (_, y) = chart.backend_coord(&(1.0, bottom + 0.5));
        let (x, _) = chart.backend_coord(&(to, bottom));
        let (left, top) = area.get_base_pixel();
        let style = ("sans-serif", 13).into_font().color(&BLACK);
        let (of_label, of_value) = (HPos::Right, HPos::Left);
        let pos = |side| style.pos(Pos::new(side, VPos::Center));
        area.draw(&Text::new(bar.label.clone(), (400 - left, y - top), pos(of_label)))?;
        let value = format!("{} ×", crate::report::number(bar.lead));
        area.draw(&Text::new(value, (x - left + 6, y - top), pos(of_value)))?;
    }
    chart.draw_series([PathElement::new(vec![(1.0, 0.0), (1.0, bars.len() as f64)], BLACK)])?;
    Ok(())
}

impl<'a> Plot<'a> {
    fn of(comparison: &'a Comparison, workload: Workload, metric: &Metric) -> Self {
        let better = match metric.better {
            Better::Higher => "more is better",
            Better::Lower => "less is better",
        };
        let bars = |case: &CaseRecord| {
            let of = |key: &str| Spread::of(&case.values(key, metric));
            comparison.contenders.iter().map(|contender| of(&contender.key)).collect()
        };
        let cases = comparison.cases.iter().filter(|case| case.workload == workload);
        Self {
            title: format!("{}: {}, {} ({better})", workload.title(), metric.label, metric.unit),
            unit: metric.unit,
            contenders: comparison.contenders.iter().map(|c| c.label.as_str()).collect(),
            groups: cases.map(|case| (case.name.as_str(), bars(case))).collect(),
        }
    }

    fn render(&self) -> Outcome<String> {
        svg(&format!("the plot \"{}\"", self.title), HEIGHT, |root| {
            let (chart, legend) = root.split_vertically(HEIGHT - LEGEND_HEIGHT);
            self.draw_bars(&chart)?;
            self.draw_legend(&legend)
        })
    }

    /// The greatest value, with room above it.
    fn top(&self) -> f64 {
        let spreads = self.groups.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let most = spreads.map(|spread| spread.most).fold(0.0, f64::max);
        if most > 0.0 { most * 1.08 } else { 1.0 }
    }
}

type Drawn<'a> = Result<(), DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>>;

impl Plot<'_> {
    fn draw_bars<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let groups = self.groups.len();
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, ("sans-serif", 18))
            .margin(8)
            .set_label_area_size(LabelAreaPosition::Left, 80)
            .set_label_area_size(LabelAreaPosition::Bottom, 26)
            .build_cartesian_2d(0.0..groups as f64, 0.0..self.top())?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .disable_x_axis()
            .y_labels(6)
            .max_light_lines(1)
            .y_label_formatter(&|value| crate::report::number(*value))
            .y_desc(self.unit)
            .label_style(("sans-serif", 13))
            .draw()?;
        for (group, (name, bars)) in self.groups.iter().enumerate() {
            let width = 0.84 / bars.len().max(1) as f64;
            for (at, spread) in bars.iter().enumerate() {
                let Some(Spread { least, median, most }) = *spread else { continue };
                let left = group as f64 + 0.08 + at as f64 * width;
                let (right, middle) = (left + width * 0.9, left + width * 0.45);
                let bar = Rectangle::new([(left, 0.0), (right, median)], color(at).filled());
                let range = PathElement::new(vec![(middle, least), (middle, most)], BLACK);
                chart.draw_series([bar])?;
                chart.draw_series([range])?;
            }
            let (x, y) = chart.backend_coord(&(group as f64 + 0.5, 0.0));
            let (left, top) = area.get_base_pixel();
            let style = ("sans-serif", 14).into_font().color(&BLACK);
            let style = style.pos(Pos::new(HPos::Center, VPos::Top));
            area.draw(&Text::new((*name).to_owned(), (x - left, y - top + 6), style))?;
        }
        Ok(())
    }

    fn draw_legend<'a>(&self, area: &Area<'a>) -> Drawn<'a> {
        let step = WIDTH as i32 / LEGEND_COLUMNS as i32;
        for (at, label) in self.contenders.iter().enumerate() {
            let x = 20 + (at % LEGEND_COLUMNS) as i32 * step;
            let y = 4 + (at / LEGEND_COLUMNS) as i32 * 18;
            area.draw(&Rectangle::new([(x, y), (x + 12, y + 12)], color(at).filled()))?;
            area.draw(&Text::new((*label).to_owned(), (x + 18, y), ("sans-serif", 13)))?;
        }
        Ok(())
    }
}

fn color(at: usize) -> RGBColor {
    COLORS[at % COLORS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::record::tests::comparison;

    #[test]
    fn every_metric_has_a_plot_with_names_and_bars() {
        let files = render_all(&comparison(&[(200.0, 100.0), (300.0, 110.0)])).unwrap();
        assert_eq!(files.len(), Workload::Writes.metrics().len());
        let (name, svg) = &files[0];
        assert_eq!(name, "writes-appends.svg");
        for part in ["<svg", "</svg>", "Ours", "Theirs", "7 streams", "more is better", "#005CAB"] {
            assert!(svg.contains(part), "{part}\n{svg}");
        }
    }

    #[test]
    fn a_plot_without_values_is_empty_but_whole() {
        let files = render_all(&comparison(&[])).unwrap();
        let (_, svg) = files.iter().find(|(name, _)| name == "writes-p99.svg").unwrap();
        assert!(svg.contains("less is better") && svg.ends_with("</svg>\n"), "{svg}");
    }
}
