"""Tables: sums, selections and other forms."""

from __future__ import annotations

import csv
import json

from ._task import Files, Task, Verifier, all_hold, becomes

SALES = 'day,city,amount\nMonday,Oslo,120\nTuesday,Rome,80\nWednesday,Oslo,45\nThursday,Bern,55\n'
STOCK = '[\n  {"name": "lamp", "count": 4},\n  {"name": "desk", "count": 0},\n  {"name": "chair", "count": 9}\n]\n'
PRICES = 'item,price\npen,2\nbook,15\nbag,30\n'
ORDERS = 'customer,item,count\nAnn,book,2\nBen,pen,10\nAnn,bag,1\n'


def has_rows(path: str, rows: list[list[str]]) -> Verifier:
    """Return a verifier that wants a CSV file with these rows, in any quotation."""

    def verify(after: Files, before: Files) -> str | None:
        try:
            found = [[cell.strip() for cell in row] for row in csv.reader(after.get(path, '').splitlines()) if row]
        except csv.Error as error:
            return f'{path} is not CSV: {error}'
        return None if found == rows else f'{path} has the rows {found}, not {rows}'

    return verify


def has_json(path: str, value: object) -> Verifier:
    """Return a verifier that wants a JSON file with this value, in any layout."""

    def verify(after: Files, before: Files) -> str | None:
        try:
            found = json.loads(after.get(path, ''))
        except (RecursionError, ValueError) as error:
            return f'{path} is not JSON: {error}'
        return None if found == value else f'{path} is {found}, not {value}'

    return verify


TASKS = (
    Task(
        id='tables/sum',
        prompt='Add up the column amount of sales.csv and write only the sum to total.txt.',
        files={'sales.csv': SALES},
        verify=becomes({'total.txt': '300'}),
        right={'total.txt': '300\n'},
        wrong=({'total.txt': '200'}, {'total.txt': 'The sum is 300.'}),
    ),
    Task(
        id='tables/filter',
        prompt='Write the rows of sales.csv whose city is Oslo to oslo.csv, below the same header.',
        files={'sales.csv': SALES},
        verify=all_hold(
            becomes({}),
            has_rows('oslo.csv', [['day', 'city', 'amount'], ['Monday', 'Oslo', '120'], ['Wednesday', 'Oslo', '45']]),
        ),
        right={'oslo.csv': 'day,city,amount\n"Monday","Oslo",120\n"Wednesday","Oslo",45\n'},
        wrong=(
            {'oslo.csv': 'Monday,Oslo,120\nWednesday,Oslo,45\n'},
            {'oslo.csv': SALES},
            {'sales.csv': 'day,city,amount\nMonday,Oslo,120\nWednesday,Oslo,45\n'},
        ),
    ),
    Task(
        id='tables/json-to-csv',
        prompt='Write the entries of stock.json as a table to stock.csv, with the header name,count.',
        files={'stock.json': STOCK},
        verify=all_hold(
            becomes({}), has_rows('stock.csv', [['name', 'count'], ['lamp', '4'], ['desk', '0'], ['chair', '9']])
        ),
        right={'stock.csv': 'name,count\nlamp,4\ndesk,0\nchair,9\n'},
        wrong=({'stock.csv': 'name,count\nlamp,4\nchair,9\n'}, {'stock.csv': 'lamp,4\ndesk,0\nchair,9\n'}),
    ),
    Task(
        id='tables/json-field',
        prompt='In stock.json, set the count of desk to 5.',
        files={'stock.json': STOCK},
        verify=has_json(
            'stock.json', [{'name': 'lamp', 'count': 4}, {'name': 'desk', 'count': 5}, {'name': 'chair', 'count': 9}]
        ),
        right={'stock.json': '[{"name":"lamp","count":4},{"name":"desk","count":5},{"name":"chair","count":9}]'},
        wrong=({'stock.json': STOCK.replace('0', '"5"')}, {'stock.json': STOCK.replace('4', '5')}, {'stock.json': '5'}),
    ),
    Task(
        id='tables/join',
        prompt='prices.csv has the price of each item, orders.csv has orders. What does Ann have to pay for all of her '
        'orders? Write only the number to ann.txt.',
        files={'prices.csv': PRICES, 'orders.csv': ORDERS},
        verify=becomes({'ann.txt': '60'}),
        right={'ann.txt': '60\n'},
        wrong=({'ann.txt': '45'}, {'ann.txt': '80'}),
    ),
)
"""The tasks."""
