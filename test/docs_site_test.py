"""The guides as a site (tools/docs): it is made without a warning, all of its links lead somewhere, and the pictures are those of their sources."""

import re
import subprocess
import tempfile
import unittest
from pathlib import Path

from testbed.testing import REPOSITORY, main


def parts(svg):
    """Names of the nodes and edges of a drawing: places and fonts may differ between machines."""
    return sorted(re.findall(r'<title>([^<]*)</title>', svg))


class SiteTest(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        with tempfile.TemporaryDirectory(prefix='cxlpool-site-') as directory:
            done = subprocess.run([REPOSITORY / 'tools/docs', '--out', directory], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            site = Path(directory)
            pages = [page for page in site.rglob('*.html') if page.name != '404.html']
            lost = []
            for page in pages:
                text = page.read_text()
                for link in re.findall(r'(?:href|src)="([^"]+)"', text):
                    file, _, place = link.partition('#')
                    if '://' in file:
                        continue
                    target = page.parent / file if file else page
                    there = target.is_dir() or target.exists() and (
                        not place or target.suffix != '.html' or f'id="{place}"' in target.read_text())
                    if not there:
                        lost.append((str(page.relative_to(site)), link))
            self.assertEqual(lost, [])
            self.assertGreater(len(pages), 20)

    def test_pictures_are_drawn_of_their_sources(self):
        sources = sorted(REPOSITORY.glob('docs/pictures/*.dot'))
        self.assertEqual([p.stem for p in sources], sorted(p.stem for p in REPOSITORY.glob('docs/pictures/*.svg')))
        for source in sources:
            with self.subTest(source.name):
                drawn = subprocess.run(['dot', '-Tsvg', source], capture_output=True, text=True, check=True, timeout=60).stdout
                self.assertEqual(parts(drawn), parts(source.with_suffix('.svg').read_text()), 'tools/docs --pictures draws it anew')


if __name__ == '__main__':
    main()
